package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/bench/faults/world"
	"berth/compute"
)

// Limits of the checks.
const (
	endLimit   = 2 * time.Minute // Until every execution of a trial has ended.
	agreeLimit = 30 * time.Second
	pageLines  = 1000 // Page size for a ledger.
)

// paths are the requests whose answers are compared between replicas. The end
// of the ledger's hash chain covers all changes of money.
var paths = []string{"/billing/ledger/verify", "/billing/history?limit=1000"} //nolint:gochecknoglobals // A constant.

// verify checks the results of the trial's submits. It returns their number and
// the number of interrupted ones.
func (s *sweep) verify(ctx context.Context, t Trial) (submits, interrupted int, err error) {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	s.submitter.waves.Wait()
	s.submitter.mu.Lock()
	all := s.submitter.submits
	s.submitter.mu.Unlock()
	var ends sync.WaitGroup
	statuses := make([]compute.Status, len(all))
	errs := make([]error, len(all))
	for i, one := range all {
		ends.Go(func() { statuses[i], errs[i] = s.see(ctx, one) })
	}
	ends.Wait()
	for i, one := range all {
		switch {
		case errs[i] != nil:
			s.violate("lost", t, "%v", errs[i])
		case statuses[i] == compute.StatusSystemFailure:
			interrupted++
		case statuses[i] != compute.StatusCompleted && len(one.types) == 0:
			s.violate("end", t, "execution %s ended as %s", one.id, statuses[i])
		}
	}
	s.report.Submits += len(all)
	if err := s.marks(t, all, statuses); err != nil {
		return 0, 0, err
	}
	return len(all), interrupted, s.agree(ctx, t)
}

// see repeats a submit at another node and waits for the end of its execution.
func (s *sweep) see(ctx context.Context, one *submit) (compute.Status, error) {
	if one.err != nil {
		return 0, fmt.Errorf("a submit was not acknowledged: %w", one.err)
	}
	again, err := s.submitter.send(ctx, one, (one.node+1)%len(s.world.Nodes))
	if err != nil {
		return 0, fmt.Errorf("execution %s: its submit repeated: %w", one.id, err)
	}
	if again != one.id {
		return 0, fmt.Errorf("execution %s: its submit repeated gives %s", one.id, again)
	}
	c, err := s.submitter.client(s.submitter.token, nil, s.submitter.urls()...)
	if err != nil {
		return 0, err
	}
	e, err := c.Finished(ctx, one.id)
	if err != nil {
		return 0, fmt.Errorf("execution %s: %s: %w", one.id, e.Status, err)
	}
	return e.Status, nil
}

// marks checks the code's marks: no attempt started twice, and every completed
// execution ran.
func (s *sweep) marks(t Trial, all []*submit, statuses []compute.Status) error {
	marks, err := check.ReadMarks(os.DirFS(s.world.Marks()))
	if err != nil {
		return err
	}
	s.report.Starts = len(marks)
	for _, v := range check.Marks(marks, nil) {
		if !slices.Contains(s.report.Violations, v) {
			s.report.Violations = append(s.report.Violations, v)
		}
	}
	for i, one := range all {
		executed := slices.ContainsFunc(marks, func(m check.Mark) bool { return m.Execution == one.id.String() && m.Ended })
		if len(one.types) == 0 && statuses[i] == compute.StatusCompleted && !executed {
			s.violate("end", t, "execution %s has completed, and its code did not reach its end", one.id)
		}
	}
	return nil
}

// agree checks that all replicas give the same answers, each from its own
// state.
func (s *sweep) agree(ctx context.Context, t Trial) error {
	ctx, cancel := context.WithTimeout(ctx, agreeLimit)
	defer cancel()
	for _, path := range paths {
		last := "nobody answered" // The last result before the timeout.
		for {
			differ := s.disagreement(ctx, path)
			if differ == "" {
				break
			}
			if ctx.Err() != nil {
				s.violate("replicas", t, "%s: %s", path, last)
				return nil
			}
			last = differ
			<-time.After(pollEvery)
		}
	}
	return nil
}

// disagreement describes how the replicas' answers differ, "" if they are
// equal.
func (s *sweep) disagreement(ctx context.Context, path string) string {
	first, err := s.local(ctx, s.world.Nodes[0], path)
	differ := ""
	for _, n := range s.world.Nodes[1:] {
		other, e := s.local(ctx, n, path)
		if err = errors.Join(err, e); e == nil && other != first {
			differ = n.Name + " answers otherwise: " + difference(other, first)
		}
	}
	if err != nil {
		return err.Error()
	}
	return differ
}

// difference returns the first difference of two texts, with some context.
func difference(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	part := func(text string) string { return text[max(n-shown, 0):min(n+shown, len(text))] }
	return fmt.Sprintf("%q, and another %q", part(a), part(b))
}

// shown is the length of the context on each side of a difference.
const shown = 120

// local returns the answer of one node from its own state.
func (s *sweep) local(ctx context.Context, n *world.Node, path string) (string, error) {
	separator := "?"
	if slices.Contains([]byte(path), '?') {
		separator = "&"
	}
	return s.get(ctx, n, path+separator+"consistency=stale")
}

// get returns a node's answer to a request of the organization.
func (s *sweep) get(ctx context.Context, n *world.Node, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL()+"/api/v2/external"+path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+s.submitter.token)
	answer, err := s.submitter.http.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return string(body), err
}

// finish checks every line of the ledger against the executions.
func (s *sweep) finish(ctx context.Context) error {
	n := s.world.Nodes[0]
	var lines []check.Line
	for cursor := uint64(0); ; {
		text, err := s.get(ctx, n, fmt.Sprintf("/billing/ledger?limit=%d&cursor=%d", pageLines, cursor))
		if err != nil {
			return err
		}
		var page wire.Ledger
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			return err
		}
		for _, e := range page.Entries {
			line := check.Line{Seq: e.Seq, Kind: e.Kind, Amount: e.Amount, Balance: e.Balance, Held: e.Held}
			if e.ExecutionID != nil {
				line.Execution = e.ExecutionID.String()
			}
			lines = append(lines, line)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	ended, err := s.ended(ctx, n)
	if err != nil {
		return err
	}
	s.report.Violations = append(s.report.Violations, check.Ledger(benchSlug, lines, ended)...)
	return nil
}

// ended returns the end of every execution. A parent reports the sum of its
// children, which are charged themselves.
func (s *sweep) ended(ctx context.Context, n *world.Node) (map[string]check.Ended, error) {
	ended := map[string]check.Ended{}
	for offset := 0; ; {
		text, err := s.get(ctx, n, fmt.Sprintf("/billing/history?limit=1000&offset=%d", offset))
		if err != nil {
			return nil, err
		}
		var page wire.ExecutionHistory
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			return nil, err
		}
		for _, e := range page.Executions {
			one := check.Ended{Status: e.Status}
			if e.Billed != nil && e.ExecutionType != compute.KindSelection {
				one.Billed = *e.Billed
			}
			ended[e.ExecutionID.String()] = one
		}
		offset += len(page.Executions)
		if len(page.Executions) == 0 || offset >= page.TotalExecutions {
			return ended, nil
		}
	}
}
