package statement

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"codeberg.org/go-pdf/fpdf"
)

// Sizes on an A4 page, in millimetres.
const (
	margin    = 20
	lineSize  = 6.5
	labelSize = 60
	dateSize  = 60
	countSize = 50
	sumSize   = 60
)

// Heading names a statement.
type Heading struct {
	ID         string // Among the statements of all organizations.
	Name, Slug string // The organization's.
	Draft      bool   // The month has not ended: its sums may change.
}

// PDF returns the statement of a month of an organization as a PDF of one page. The
// same month gives the same bytes.
func PDF(m *Month, h Heading) ([]byte, error) {
	name, err := withGlyphs(oneLine(h.Name))
	if err != nil {
		return nil, err
	}
	doc := fpdf.New("P", "mm", "A4", "")
	doc.SetCreationDate(m.End())
	doc.SetModificationDate(m.End())
	doc.SetCatalogSort(true)
	doc.SetMargins(margin, margin, margin)
	kind := "Statement"
	if h.Draft {
		kind = "Draft statement"
	}
	doc.SetTitle(kind+" "+m.ID()+" of "+h.Slug, true)
	doc.SetProducer("Berth", true)
	doc.AddPage()
	doc.AddUTF8FontFromBytes(nameFont, "", liberationsansregular.TTF)

	doc.SetFont("Helvetica", "B", 18)
	doc.CellFormat(0, 10, kind+" of credits, "+m.Start.Format("January 2006"), "", 1, "L", false, 0, "")
	doc.SetFont(nameFont, "", 11)
	doc.CellFormat(0, lineSize, fmt.Sprintf("%s (%s)", name, h.Slug), "", 1, "L", false, 0, "")
	doc.SetFont("Helvetica", "", 11)
	doc.Ln(lineSize)
	for _, row := range [][2]string{
		{"Statement", h.ID},
		{"Opening balance", m.Opening.String()},
		{"Granted", m.Granted.String()},
		{"Charged", m.Charged.String()},
		{"Closing balance", m.Closing.String()},
		{"Last ledger line", strconv.FormatUint(m.Last, 10)},
	} {
		doc.CellFormat(labelSize, lineSize, row[0], "", 0, "L", false, 0, "")
		doc.CellFormat(sumSize, lineSize, row[1], "", 1, "R", false, 0, "")
	}
	doc.Ln(lineSize)
	doc.SetFont("Helvetica", "B", 10)
	tableRow(doc, "Day (UTC)", "Charges", "Credits")
	doc.SetFont("Helvetica", "", 10)
	for _, day := range m.Days {
		tableRow(doc, day.Date.Format("2006-01-02"), strconv.Itoa(day.Charges), day.Charged.String())
	}
	doc.SetFont("Helvetica", "B", 10)
	tableRow(doc, "Total", strconv.Itoa(m.Charges), m.Charged.String())
	doc.Ln(lineSize)
	doc.SetFont("Courier", "", 7)
	doc.CellFormat(0, 4, "SHA-256 of the last line: "+hex.EncodeToString(m.Hash[:]), "", 1, "L", false, 0, "")

	var out bytes.Buffer
	if err := doc.Output(&out); err != nil {
		return nil, fmt.Errorf("print statement: %w", err)
	}
	return out.Bytes(), nil
}

// tableRow prints one line of the table of days.
func tableRow(doc *fpdf.Fpdf, date, count, sum string) {
	doc.CellFormat(dateSize, 5.2, date, "B", 0, "L", false, 0, "")
	doc.CellFormat(countSize, 5.2, count, "B", 0, "R", false, 0, "")
	doc.CellFormat(sumSize, 5.2, sum, "B", 1, "R", false, 0, "")
}

// oneLine returns a name that fits on a line.
func oneLine(name string) string {
	const most = 70
	name = strings.Join(strings.Fields(name), " ")
	if runes := []rune(name); len(runes) > most {
		name = string(runes[:most]) + "..."
	}
	return name
}
