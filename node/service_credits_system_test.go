package node_test

import (
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestServiceCreditsEnd warns a service that has credits for half an hour, and stops
// it when they end. Time passes while the nodes are down: their clocks are ahead afterwards.
func TestServiceCreditsEnd(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	account := c.MustAccount("acme")
	ask := func() *client.Client { return nodetest.MustClient(t, account.Key, c.Follower().URL()) }
	before, err := ask().Credits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	price := compute.Price(before.Available) / compute.Price(30*60)
	if _, err := nodetest.MustClient(t, c.RootToken, c.Follower().URL()).SetPrice(t.Context(), "cpu", price, 0); err != nil {
		t.Fatal(err)
	}
	started, err := ask().SubmitService(t.Context(), client.StartService{Start: client.Start{Code: serviceCode}, HealthPath: "/health"})
	if err != nil {
		t.Fatal(err)
	}
	id := started.ExecutionID
	s := mustService(t, ask(), id, "a ready replica", func(s wire.Service) bool { return s.Ready == 1 })
	if s.Rows[0].CreditsEnd != nil {
		t.Errorf("its credits end at %s", s.Rows[0].CreditsEnd.Time())
	}
	replica := s.Rows[0].ExecutionID
	held := func() (credits wire.Credits) {
		t.Helper()
		if credits, err = ask().Credits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if credits.Held < 0 || credits.Available < 0 || credits.Held+credits.Available != credits.Remaining {
			t.Errorf("the credits are %+v", credits)
		}
		return credits
	}
	if first := held(); first.Held < price.Charge(10*time.Minute) || first.Held > price.Charge(11*time.Minute) {
		t.Errorf("of %+v it holds %+v", before, first)
	}

	c.Restart(21 * time.Minute) // No whole ten minutes are paid for.
	nodetest.Eventually(t, endWait, "the warning in its output", func() bool {
		found, err := ask().ExecutionLogs(t.Context(), id, client.LogQuery{Search: "credits end at"})
		return err == nil && found.Total > 0
	})
	s = mustService(t, ask(), id, "the replica to be ready still", func(s wire.Service) bool { return s.Ready == 1 })
	if s.Rows[0].ExecutionID != replica || s.Rows[0].CreditsEnd == nil || s.Rows[0].Restarts != 0 ||
		s.Rows[0].Detail == nil || !strings.Contains(*s.Rows[0].Detail, "credits end in about") {
		t.Errorf("it was replica %s and is %+v", replica, s.Rows[0])
	}
	if all := held(); all.Available >= price.Charge(10*time.Minute) {
		t.Errorf("it is warned while %+v are left", all)
	}

	c.Restart(75 * time.Minute)
	e := mustFinish(t, ask(), id)
	if e.Status != compute.StatusCancelled || e.StatusDetails == nil || *e.StatusDetails != compute.ReasonCredits.String() {
		t.Errorf("it is %v, %v, errors %v", e.Status, e.StatusDetails, e.Errors)
	}
	after := held()
	if one, err := ask().Execution(t.Context(), replica, 0); err != nil || one.Billed == nil || *one.Billed <= 0 ||
		after.Held != 0 || after.Remaining != before.Remaining-*one.Billed {
		t.Errorf("it costs %v of %+v, left are %+v, %v", one.Billed, before, after, err)
	}
	for hours, want := range map[int]bool{1: false, 2: true} { // It was printed over an hour ago.
		found, err := ask().UserLogs(t.Context(), client.LogQuery{Search: "serving", Hours: hours})
		if err != nil || (found.Total > 0) != want {
			t.Errorf("in the last %d hours it printed %+v, %v", hours, found.Logs, err)
		}
	}
}
