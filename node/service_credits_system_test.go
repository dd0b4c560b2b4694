package node_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestServiceCreditsEnd warns a service that has credits for half an hour, and stops
// it when they end. A deployment of another organization, which has as many, stays: it is
// stopped. Time passes while the nodes are down: their clocks are ahead afterwards.
func TestServiceCreditsEnd(t *testing.T) {
	t.Parallel() // It mostly waits.
	echo := withEcho(t)
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) { echo(cfg) })
	account, owner := c.MustAccount("acme"), c.MustAccount("models")
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
	deployed, err := nodetest.MustClient(t, owner.Key, c.Follower().URL()).Deploy(t.Context(), deploymentOf("tiny/echo"))
	if err != nil {
		t.Fatal(err)
	}
	id := started.ExecutionID
	s := mustService(t, ask(), id, "a ready replica", func(s wire.Service) bool { return s.Ready == 1 })
	if s.Rows[0].CreditsEnd != nil {
		t.Errorf("its credits end at %s", s.Rows[0].CreditsEnd.Time())
	}
	mustDeployment(t, nodetest.MustClient(t, owner.Key, c.Follower().URL()), deployed.ID, "ready")
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
	d := mustDeployment(t, nodetest.MustClient(t, owner.Key, c.Follower().URL()), deployed.ID, "ready")
	if len(d.Rows) != 1 || d.Rows[0].CreditsEnd == nil || !strings.Contains(orNone(d.Rows[0].Detail), "credits end in about") {
		t.Errorf("the replicas of the deployment are %+v", d.Rows)
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
	checkUnpaidDeployment(t, c, owner, deployed.ID)
}

// checkUnpaidDeployment asks a follower for a deployment whose credits have ended. It is stopped,
// and says why. Without credits it does not start, and with some it answers again.
func checkUnpaidDeployment(t *testing.T, c *nodetest.Cluster, owner nodetest.Account, id compute.ExecutionID) {
	url := c.Follower().URL()
	api := nodetest.MustClient(t, owner.Key, url)
	ask := func() (reply, string) {
		t.Helper()
		return mustAsk(t, http.DefaultClient, http.MethodPost, url+"/openai/v1/chat/completions", owner.Key, prompt(id.String(), "x", false))
	}
	const why = "the organization's credits are exhausted"
	for _, started := range []bool{false, true} {
		if started {
			nodetest.Eventually(t, endWait, "the replica to hold nothing", func() bool {
				credits, err := api.Credits(t.Context())
				return err == nil && credits.Held == 0
			})
			// The replica has executed for seconds, so that most credits are there again: others hold them.
			for _, seconds := range []int{600, 600, 300} {
				holder, err := api.Submit(t.Context(), client.Start{Code: "import time\ntime.sleep(3600)", Timeout: seconds})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := api.Abort(t.Context(), holder.ExecutionID); err != nil {
						t.Error(err)
					}
				}()
			}
			if _, err := api.StartDeployment(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		d := mustDeployment(t, api, id, "stopped")
		x, err := api.Explain(t.Context(), id, false)
		if err != nil || orNone(d.Detail) != why || orNone(x.Detail) != why || d.Replicas != 0 || d.Ready != 0 {
			t.Errorf("started %t: it is %+v, and explained by %+v, %v", started, d, x, err)
		}
		if answer, body := ask(); answer.StatusCode != http.StatusConflict || codeOfModel(body) != "deployment_stopped" {
			t.Errorf("started %t: it answers %d: %s", started, answer.StatusCode, body)
		}
	}
	if err := nodetest.MustClient(t, c.RootToken, url).Grant(t.Context(), owner.Slug, 100*compute.Credit, "to go on"); err != nil {
		t.Fatal(err)
	}
	if _, err := api.StartDeployment(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if d := mustDeployment(t, api, id, "ready"); d.Detail != nil {
		t.Errorf("with credits it says %q", *d.Detail)
	}
	if answer, body := ask(); answer.StatusCode != http.StatusOK {
		t.Errorf("with credits it answers %d: %s", answer.StatusCode, body)
	}
}
