package billing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// usage answers the use of the organization, by group.
func (g *billing) usage(r *edge.Request) (any, error) {
	in := r.Query.(*wire.UsageQuery)
	to := in.To // The filter has no end without one: what was just submitted counts.
	if to.IsZero() {
		to = r.View.Now()
	}
	if in.From.IsZero() {
		t := to.Time().UTC().Add(-time.Nanosecond) // The last moment before: to is not counted.
		in.From = compute.InstantOf(time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC))
	}
	done, err := g.Scans.Take(r.Ctx, r.Caller.Actor.Org)
	if err != nil {
		return nil, err
	}
	defer done()
	report := &usageReport{view: r.View, org: r.Caller.Actor.Org, by: in.GroupBy, rows: map[string]*usageRow{}}
	if err := report.read(r.Ctx, in, g.OpenArchive(r.Ctx)); err != nil {
		return nil, err
	}
	report.readTokens(in.From, in.To)
	out := wire.UsageReport{GroupBy: in.GroupBy, From: in.From, To: to, Rows: report.sorted(), Total: report.total.wire()}
	if in.Format == "csv" {
		table, err := usageCSV(out)
		return answer.Text{ContentType: "text/csv; charset=utf-8", Body: table}, err
	}
	return out, nil
}

// usageReport sums executions up in groups.
type usageReport struct {
	view  *fsm.View
	org   compute.OrgID
	by    string
	rows  map[string]*usageRow // By what names the group in the state.
	total usageRow
}

// usageRow is the sum of a group.
type usageRow struct {
	group, id  string
	executions int
	time       time.Duration
	milliGPU   int64 // Thousandths of a GPU × milliseconds.
	credits    compute.Credits

	prompt, completion int64 // Tokens.
}

// read adds the executions that were submitted in the time of a query.
func (u *usageReport) read(ctx context.Context, in *wire.UsageQuery, open fsm.OpenArchive) error {
	filter := fsm.HistoryFilter{From: in.From, To: in.To}
	for c, err := range u.view.WholeHistory(u.org, filter, open) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		e := c.Execution
		if e.Kind.IsParent() {
			continue
		}
		u.total.add(e)
		for _, group := range u.groups(e) {
			row := u.rows[group]
			if row == nil {
				row = new(usageRow)
				row.group, row.id = u.name(e, group)
				u.rows[group] = row
			}
			row.add(e)
		}
	}
	return nil
}

// groups returns the keys of e's groups in the state.
func (u *usageReport) groups(e *compute.Execution) []string {
	switch u.by {
	case "user":
		return []string{e.User.String()}
	case "key":
		if e.Key.IsZero() {
			return []string{""}
		}
		return []string{e.Key.String()}
	case "profile":
		return []string{e.Profile}
	case "day":
		return []string{dayOf(e.CreatedAt)}
	case "model":
		if e.Inference == nil {
			return []string{""}
		}
		return []string{e.Inference.Model}
	}
	if len(e.Tags) == 0 {
		return []string{""}
	}
	return slices.Compact(slices.Sorted(slices.Values(e.Tags)))
}

// serverless is the row of tokens in reports whose groups they do not have.
const serverless = "serverless"

// readTokens adds tokens of published models in a period: those that were charged, and
// those that are used but not charged yet. A zero to means no end.
func (u *usageReport) readTokens(from, to compute.Instant) {
	within := func(at compute.Instant) bool { return at >= from && (to.IsZero() || at < to) }
	for line := range u.view.Ledger(u.org, 0) {
		model, prompt, completion, ok := compute.ParseTokenNote(line.Note)
		if !ok || !within(line.At) {
			continue
		}
		switch line.Kind {
		case compute.LedgerCharge:
			u.addTokens(model, line.At, 0, 0, line.Amount)
		case compute.LedgerRelease: // Each charge has one, also if it is below a micro-credit.
			u.addTokens(model, line.At, prompt, completion, 0)
		case compute.LedgerGrant, compute.LedgerHold, compute.LedgerFork:
		}
	}
	if now := u.view.Now(); within(now) {
		for _, used := range u.view.UnpostedTokens(u.org) {
			u.addTokens(used.Model, now, used.Prompt, used.Completion, 0)
		}
	}
}

// addTokens adds tokens of a model.
func (u *usageReport) addTokens(model string, at compute.Instant, prompt, completion int64, credits compute.Credits) {
	group := serverless
	switch u.by {
	case "day":
		group = dayOf(at)
	case "model":
		group = model
	}
	row := u.rows[group]
	if row == nil {
		row = &usageRow{group: group}
		u.rows[group] = row
	}
	for _, sum := range []*usageRow{row, &u.total} {
		sum.prompt += prompt
		sum.completion += completion
		sum.credits += credits
	}
}

// dayOf returns the day of a time as reports name it.
func dayOf(at compute.Instant) string { return at.Time().UTC().Format(time.DateOnly) }

// name returns the displayed name of a group of e, and its identifier.
func (u *usageReport) name(e *compute.Execution, group string) (name, id string) {
	switch {
	case u.by == "user":
		if user, ok := u.view.User(e.User); ok {
			return user.Email, group
		}
		return group, group
	case u.by == "key" && group != "":
		if key, ok := u.view.Key(u.org, e.Key); ok {
			return key.Name, group
		}
		return group, group // It was deleted.
	}
	return group, ""
}

// add adds an execution.
func (row *usageRow) add(e *compute.Execution) {
	row.executions++
	took := e.Owed + e.Duration // Earlier attempts that others preempted are charged too.
	row.time += took
	row.milliGPU += e.Request.HeldMilliGPU() * took.Milliseconds()
	row.credits += e.Billed
}

// wire returns the row as it is shown.
func (row *usageRow) wire() wire.UsageRow {
	return wire.UsageRow{
		Group: row.group, ID: wire.OrNull(row.id), Executions: row.executions, Seconds: row.time.Seconds(),
		GPUSeconds: float64(row.milliGPU) / 1e6, Credits: row.credits,
		PromptTokens: row.prompt, CompletionTokens: row.completion,
	}
}

// sorted returns the rows: days in their order, others by credits.
func (u *usageReport) sorted() []wire.UsageRow {
	rows := make([]*usageRow, 0, len(u.rows))
	for _, row := range u.rows {
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b *usageRow) int {
		byName := cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.id, b.id))
		if u.by == "day" {
			return byName
		}
		return cmp.Or(cmp.Compare(b.credits, a.credits), cmp.Compare(b.time, a.time), byName)
	})
	out := make([]wire.UsageRow, len(rows))
	for i, row := range rows {
		out[i] = row.wire()
	}
	return out
}

// usageCSV returns a report as a table: a header, and a line per group. Lines of users and
// keys end with the identifier: two keys may have the same name.
func usageCSV(report wire.UsageReport) ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	identified := report.GroupBy == "user" || report.GroupBy == "key"
	header := []string{
		report.GroupBy, "executions", "seconds", "gpu_seconds", "credits", "prompt_tokens", "completion_tokens",
	}
	if identified {
		header = append(header, "id")
	}
	lines := [][]string{header}
	for _, row := range report.Rows {
		line := []string{
			handler.TableText(row.Group), strconv.Itoa(row.Executions), handler.TableNumber(row.Seconds),
			handler.TableNumber(row.GPUSeconds), row.Credits.String(),
			strconv.FormatInt(row.PromptTokens, 10), strconv.FormatInt(row.CompletionTokens, 10),
		}
		switch {
		case identified && row.ID != nil:
			line = append(line, *row.ID)
		case identified: // Work without a key, and tokens.
			line = append(line, "")
		}
		lines = append(lines, line)
	}
	if err := w.WriteAll(lines); err != nil {
		return nil, fmt.Errorf("write table: %w", err)
	}
	return out.Bytes(), nil
}
