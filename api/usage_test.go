package api_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"testing"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// later lets time go by in the state too, which takes it in small steps.
func (w *world) later(d time.Duration) {
	w.Helper()
	w.pass(d)
	for want := compute.InstantOf(w.clock()); w.machine.View().Now() < want; {
		w.must(command.TouchKeys{})
	}
}

// used has bob's organization use two types on two days, under a key and tags.
func (w *world) used() {
	w.Helper()
	w.addNode(1, "h100", "t4")
	run := func(profile, tags string, d time.Duration) {
		var started wire.Started
		w.mustDo("POST", "/execution/streaming/start", w.bobKey,
			fmt.Sprintf(`{"code":"1","execution_type":%q,"tags":%s}`, profile, tags), &started)
		w.complete(started.ExecutionID, 1, d)
	}
	run("h100", `["=train","night"]`, 100*time.Second)
	run("t4", `["night"]`, 10*time.Second)
	w.later(24 * time.Hour)
	run("t4", `[]`, time.Second)
	w.start("cpu") // By ada, who is in another organization.
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", w.bobKey, `{"code":"1","execution_type":"t4"}`, &started) // Live.
}

// TestUsage sums executions up by each group. Every report has the same total, which is
// that of the ledger.
func TestUsage(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	w.used()
	var credits wire.Credits
	w.mustDo("GET", "/billing/credits", w.bobKey, nil, &credits)
	for by, want := range map[string][]string{
		"user":    {"bob@example.com 4 111 111"},
		"key":     {"test 4 111 111"},
		"profile": {"gpu.h100 1 100 100", "gpu.t4 3 11 11"},
		"tag":     {"=train 1 100 100", "night 2 110 110", " 2 1 1"},
		"day":     {"first 2 110 110", "second 2 1 1"},
	} {
		var report wire.UsageReport
		w.mustDo("GET", "/billing/usage?from=2020-01-01T00:00:00Z&group_by="+by, w.bobKey, nil, &report)
		if report.GroupBy != by || report.Total.Executions != 4 || report.Total.Seconds != 111 || report.Total.Credits != credits.TotalUsed {
			t.Errorf("%s: the total is %+v, used are %v", by, report.Total, credits.TotalUsed)
		}
		got := map[string]bool{}
		for i, row := range report.Rows {
			group := row.Group
			if by == "day" {
				group = []string{"first", "second"}[i]
			}
			got[fmt.Sprint(group, " ", row.Executions, " ", row.Seconds, " ", row.GPUSeconds)] = true
			if by != "day" && i > 0 && row.Credits > report.Rows[i-1].Credits {
				t.Errorf("%s: row %d has more credits than the one before", by, i)
			}
		}
		for _, row := range want {
			if !got[row] || len(got) != len(want) {
				t.Errorf("%s: got %v, want %q", by, got, row)
			}
		}
	}
}

// TestUsageOfSomeTime selects by the time of the submit, and refuses malformed times.
func TestUsageOfSomeTime(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	w.used()
	var report wire.UsageReport
	day := compute.InstantOf(w.clock().Add(-12 * time.Hour)).String()
	for query, n := range map[string]int{"from=" + day: 2, "to=" + day + "&from=2020-01-01T00:00:00Z": 2, "from=" + day + "&to=" + day: 0} {
		w.mustDo("GET", "/billing/usage?"+query, w.bobKey, nil, &report)
		if report.Total.Executions != n {
			t.Errorf("%s: %d executions, want %d", query, report.Total.Executions, n)
		}
	}
	april := compute.InstantOf(time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC))
	if w.mustDo("GET", "/billing/usage?to="+april.String(), w.bobKey, nil, &report); report.Total.Executions == 0 ||
		report.From != compute.InstantOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("until April: %d executions from %v", report.Total.Executions, report.From)
	}
	for _, query := range []string{"group_by=node", "from=yesterday", "format=pdf", "from=2026-11-02T00:00:00Z&to=2026-11-01T00:00:00Z"} {
		w.want(422, "", "GET", "/billing/usage?"+query, w.bobKey, nil)
	}
	a := w.mustDo("GET", "/billing/usage?from=2020-01-01T00:00:00Z&group_by=tag&format=csv", w.bobKey, nil, nil)
	rows, err := csv.NewReader(bytes.NewReader(a.body)).ReadAll()
	if err != nil || len(rows) != 4 || rows[0][0] != "tag" || rows[2][0] != "'=train" || a.header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Errorf("got %v, %v as %s", rows, err, a.header.Get("Content-Type"))
	}
	for _, by := range []string{"user", "key"} { // Names of keys are not unique: a bill needs the identifier.
		query := "/billing/usage?from=2020-01-01T00:00:00Z&group_by=" + by
		w.mustDo("GET", query, w.bobKey, nil, &report)
		a := w.mustDo("GET", query+"&format=csv", w.bobKey, nil, nil)
		rows, err := csv.NewReader(bytes.NewReader(a.body)).ReadAll()
		if err != nil || len(rows) != 2 || len(rows[1]) != 8 || rows[0][7] != "id" || rows[1][7] != *report.Rows[0].ID {
			t.Errorf("by %s: got %v, %v", by, rows, err)
		}
	}
}

// TestInvoices has a statement that agrees with the ledger, as JSON and as PDF, and the
// activities behind it.
func TestInvoices(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	w.used()
	w.later(40 * 24 * time.Hour)
	w.mustDo("POST", "/billing/grant", w.adaKey, map[string]any{"org": "bob-lab", "credits": 5, "reason": "spring"}, nil)
	var list wire.Invoices
	w.mustDo("GET", "/billing/invoices", w.bobKey, nil, &list)
	var credits wire.Credits
	w.mustDo("GET", "/billing/credits", w.bobKey, nil, &credits)
	if list.Total != len(list.Invoices) || list.Total < 2 || list.Invoices[0].Status != "draft" || list.Invoices[1].Status != "paid" {
		t.Fatalf("got %+v", list)
	}
	var charged compute.Credits
	for i, m := range list.Invoices {
		charged += m.Credits
		if m.Opening+m.Granted-m.Credits != m.Closing || i > 0 && list.Invoices[i-1].Opening != m.Closing || m.Amount != nil {
			t.Errorf("%s does not add up: %+v", m.ID, m)
		}
		var one wire.Invoice
		w.mustDo("GET", "/billing/invoices/"+m.ID, w.bobKey, nil, &one)
		if one.Hash != m.Hash || one.Credits != m.Credits {
			t.Errorf("%s by itself is %+v", m.ID, one)
		}
		a := w.mustDo("GET", m.InvoicePDF[len("/api/v2/external"):], w.bobKey, nil, nil)
		if !bytes.HasPrefix(a.body, []byte("%PDF-")) || a.header.Get("Content-Type") != "application/pdf" {
			t.Errorf("%s: %s %.20q", m.ID, a.header.Get("Content-Type"), a.body)
		}
		if draft := bytes.Contains(a.body, []byte("\x00D\x00r\x00a\x00f\x00t")); draft != (m.Status == "draft") {
			t.Errorf("%s is %s, and as PDF a draft: %t", m.ID, m.Status, draft)
		}
	}
	if charged != credits.TotalUsed || charged == 0 || list.Invoices[0].Granted != 5*compute.Credits(1e6) {
		t.Errorf("charged %v, used %v, granted %v", charged, credits.TotalUsed, list.Invoices[0].Granted)
	}
	for _, id := range []string{"2020-01", "x", list.Invoices[0].Month} {
		w.want(404, "not_found", "GET", "/billing/invoices/"+id, w.bobKey, nil)
	}

	var all, page wire.Activities
	w.mustDo("GET", "/billing/activities", w.bobKey, nil, &all)
	w.mustDo("GET", "/billing/activities?limit=1&offset=1", w.bobKey, nil, &page)
	first := all.Activities[0]
	if all.Total != len(all.Activities) || first.Type != "grant" || first.Description != "spring" || page.Total != all.Total ||
		len(page.Activities) != 1 || page.Activities[0].ID != all.Activities[1].ID {
		t.Errorf("got %+v, then %+v", all, page)
	}
	if c := all.Activities[1]; c.Type != "charge" || c.Amount >= 0 || c.ExecutionID == nil || c.Profile == nil {
		t.Errorf("a charge is %+v", c)
	}
	w.mustDo("GET", fmt.Sprint("/billing/activities?offset=", all.Total), w.bobKey, nil, &page)
	if len(page.Activities) != 0 {
		t.Errorf("behind the last: %+v", page)
	}
}

// TestUsageOfTokens has the tokens of models in every report, by the time they were
// charged, and those of the minute that is not over.
func TestUsageOfTokens(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	w.used()
	view := w.machine.View()
	org, _ := view.OrgBySlug("bob-lab")
	batch := command.SettleTokens{Node: nodeID(1), Session: 5}
	settle := func(model string, prompt, completion int64) {
		batch.Number++
		batch.Usage = []command.UsedTokens{{
			Payer: compute.Payer{Org: org.ID}, Model: model, Prompt: prompt, Completion: completion, Requests: 1,
			Prices: compute.TokenPrices{Prompt: 100 * compute.Credit, Completion: 200 * compute.Credit},
		}}
		w.must(batch)
	}
	settle("lab/chat: 7b", 1000, 500)
	settle("embed", 10, 0)
	w.later(2 * time.Minute)
	w.must(command.Tick{Term: 1})
	settle("embed", 7, 0)
	var credits wire.Credits
	w.mustDo("GET", "/billing/credits", w.bobKey, nil, &credits)
	for by, want := range map[string]string{
		"model": "lab/chat: 7b 0 1000 500 0.2", "user": "serverless 0 1017 500 0.201", "tag": "serverless 0 1017 500 0.201",
	} {
		var report wire.UsageReport
		w.mustDo("GET", "/billing/usage?from=2020-01-01T00:00:00Z&group_by="+by, w.bobKey, nil, &report)
		found := false
		for _, row := range report.Rows {
			found = found || want == fmt.Sprint(row.Group, " ", row.Executions, " ", row.PromptTokens, " ", row.CompletionTokens, " ", row.Credits)
		}
		if total := report.Total; !found || total.PromptTokens != 1017 || total.CompletionTokens != 500 || total.Credits != credits.TotalUsed ||
			total.Executions != 4 {
			t.Errorf("%s: got %+v, want %q; used are %v", by, report, want, credits.TotalUsed)
		}
	}
	before := compute.InstantOf(w.clock().Add(-time.Hour)).String()
	var report wire.UsageReport
	w.mustDo("GET", "/billing/usage?from=2020-01-01T00:00:00Z&group_by=model&to="+before, w.bobKey, nil, &report)
	if report.Total.PromptTokens != 0 || len(report.Rows) != 1 {
		t.Errorf("before that there was %+v", report)
	}
	a := w.mustDo("GET", "/billing/usage?group_by=model&format=csv", w.bobKey, nil, nil)
	rows, err := csv.NewReader(bytes.NewReader(a.body)).ReadAll()
	if err != nil || len(rows) < 3 || fmt.Sprint(rows[0][5:]) != "[prompt_tokens completion_tokens]" ||
		fmt.Sprint(rows[2]) != "[embed 0 0 0 0.001 17 0]" {
		t.Errorf("got %v, %v", rows, err)
	}
}
