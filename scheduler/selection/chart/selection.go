package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"berth/compute"
)

// The size of a chart, in points, and from which ratio on an axis is
// logarithmic.
const (
	width    = 640
	height   = 420
	logRatio = 20
	sans     = "Sans" // The font whose measures place the text.

	margin     = 12 // Around everything.
	legendRoom = 34 // Below the axis.
)

// dot is one GPU type in the chart.
type dot struct {
	name    string
	seconds float64
	credits float64
	front   bool
	best    bool
	least   bool // It was stopped early: this is the least it would have taken.
}

// Selection draws the result of a GPU selection as SVG: each GPU type at its
// seconds and credits, the Pareto front as a line, the recommended one in a
// ring. Types that were stopped early are hollow, at the least that they would
// have taken. Text stays text, in whatever sans-serif font the reader has.
func Selection(objective compute.Objective, candidates []compute.Candidate, v compute.Verdict) ([]byte, error) {
	dots := dotsOf(candidates, v)
	p, err := plotOf(objective, dots)
	if err != nil {
		return nil, fmt.Errorf("draw chart: %w", err)
	}
	canvas := vgsvg.New(width, height)
	area := draw.New(canvas)
	area.SetColor(color.White)
	area.Fill(area.Rectangle.Path())
	p.Draw(draw.Crop(area, margin, -margin, legendRoom, -margin))
	if len(dots) > 0 {
		drawLegend(draw.Crop(area, margin, -margin, margin, 0), dots)
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("write chart: %w", err)
	}
	return accessible(out.Bytes(), title(objective), describe(dots, v)), nil
}

// dotsOf returns the GPU types that have a place in the chart.
func dotsOf(candidates []compute.Candidate, v compute.Verdict) []dot {
	var dots []dot
	for i := range candidates {
		c, row := &candidates[i], v.Rows[i]
		d := dot{name: strings.TrimPrefix(c.Profile, "gpu."), front: row.Pareto, best: v.Best == i}
		if row.Completed > 0 {
			d.seconds, d.credits = row.Duration.Seconds(), credits(row.Credits)
			dots = append(dots, d)
			continue
		}
		for _, run := range c.Runs {
			if run.Status == compute.StatusCancelled && run.Predicted > 0 {
				d.least, d.seconds = true, run.Predicted.Seconds()
				d.credits = credits(run.Price.Charge(run.Predicted))
				dots = append(dots, d)
				break
			}
		}
	}
	return dots
}

func credits(c compute.Credits) float64 { return float64(c) / float64(compute.Credit) }

func title(objective compute.Objective) string {
	return "GPU selection: seconds and credits per GPU type, objective " + objective.String()
}

// describe returns the content of the chart as text.
func describe(dots []dot, v compute.Verdict) string {
	var b strings.Builder
	for _, d := range dots {
		least := ""
		if d.least {
			least = "stopped early, at least "
		}
		fmt.Fprintf(&b, "%s: %s%.4g s, %.6g credits. ", d.name, least, d.seconds, d.credits)
	}
	return b.String() + v.Reason
}

// plotOf returns the chart without its frame.
func plotOf(objective compute.Objective, dots []dot) (*plot.Plot, error) {
	p := plot.New()
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font,
	} {
		f.Variant = sans
	}
	p.Title.Text = "Seconds and credits per GPU type (" + objective.String() + ")"
	p.Title.Padding = vg.Points(10)
	p.BackgroundColor = color.Transparent // The whole chart has one.
	p.X.Label.Text, p.Y.Label.Text = "seconds", "credits"
	p.X.Padding, p.Y.Padding = 0, 0
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(6)
	p.Add(grid())
	if len(dots) == 0 {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
		p.HideAxes()
		p.Title.Text += ": nothing has completed"
		return p, nil
	}
	bounds(&p.X, dots, func(d dot) float64 { return d.seconds })
	bounds(&p.Y, dots, func(d dot) float64 { return d.credits })
	if err := addFront(p, dots); err != nil {
		return nil, err
	}
	p.Add(marks(dots))
	return p, nil
}

// bounds makes an axis wide enough for all dots and their names.
func bounds(axis *plot.Axis, dots []dot, value func(dot) float64) {
	low, high := value(dots[0]), value(dots[0])
	for _, d := range dots {
		low, high = min(low, value(d)), max(high, value(d))
	}
	if low > 0 && high/low > logRatio {
		axis.Min, axis.Max = low/2, high*2
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		return
	}
	margin := max(high-low, high/2) * 0.2
	axis.Min, axis.Max = max(low-margin, 0), high+margin
	if high <= 0 { // All of it is free.
		axis.Max = 1
	}
	axis.Tick.Marker = evenTicks{}
}

// grid returns the lines behind the marks, light enough not to compete.
func grid() *plotter.Grid {
	g := plotter.NewGrid()
	light := color.Gray{Y: 0xdd}
	g.Vertical.Color, g.Horizontal.Color = light, light
	return g
}

// addFront draws the Pareto front.
func addFront(p *plot.Plot, dots []dot) error {
	var line plotter.XYs
	for _, d := range dots {
		if d.front {
			line = append(line, plotter.XY{X: d.seconds, Y: d.credits})
		}
	}
	slices.SortFunc(line, func(a, b plotter.XY) int {
		if a.X < b.X {
			return -1
		}
		return 1
	})
	front, err := plotter.NewLine(line)
	if err != nil {
		return err
	}
	front.LineStyle = frontStyle()
	p.Add(front)
	return nil
}

// Colours that people with red-green blindness can distinguish too.
func blue() color.Color { return color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff} }
func red() color.Color  { return color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff} }
func grey() color.Color { return color.RGBA{R: 0x66, G: 0x66, B: 0x66, A: 0xff} }

// accessible gives an SVG a title and a description for readers that do not see
// it, and fonts that every reader has.
func accessible(svg []byte, title, description string) []byte {
	at := bytes.Index(svg, []byte("<svg"))
	end := bytes.IndexByte(svg[max(at, 0):], '>')
	if at < 0 || end < 0 {
		return svg
	}
	end += at
	var out bytes.Buffer
	out.Write(svg[:end])
	out.WriteString(` role="img" aria-labelledby="title desc">` + "\n")
	fmt.Fprintf(&out, "<title id=%q>%s</title>\n<desc id=%q>%s</desc>\n",
		"title", escape(title), "desc", escape(description))
	out.Write(svg[end+1:])
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:sans-serif"))
}

func escape(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // A buffer takes everything.
	return b.String()
}
