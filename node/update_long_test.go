//go:build long

package node_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestUpdateOutlivesNodes kills, while the replicas of a deployment are replaced one
// after the other, the leader, then the node of a replica, and then the leader once more
// while a node is drained. No request through a node that lives fails.
func TestUpdateOutlivesNodes(t *testing.T) {
	t.Parallel() // It mostly waits.
	d := newEngineDrill(t, withEcho(t))
	want := deploymentOf("tiny/echo")
	want.MinReplicas, want.MaxReplicas = 2, 2
	created, err := d.api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	d.id = created.ID
	mustDeployment(t, d.api, d.id, "ready")
	for _, test := range []struct {
		name   string
		change func(host *nodetest.Process) (done func() bool)
		leader bool // It is killed; else the node of a replica.
	}{
		{"an update and the leader", func(*nodetest.Process) func() bool { return d.update("--threads=3") }, true},
		{"an update and a node", func(*nodetest.Process) func() bool { return d.update("--threads=4") }, false},
		{"a drain and the leader", d.drain, true},
	} {
		host := d.host()
		victim := d.leaderBut(host)
		if !test.leader {
			victim = host
		}
		by := d.other(victim)
		stop := d.askOften(test.name, by)
		done := test.change(host)
		nodetest.Eventually(t, endWait, "one replica more", func() bool { return len(d.rows()) > 2 || done() })
		victim.Kill()
		nodetest.Eventually(t, 2*endWait, "the replicas to be replaced during "+test.name, done)
		stop()
		d.back(victim)
	}
}

// rows returns the replicas of the deployment, none if the node that was asked is gone.
func (d *engineDrill) rows() []wire.ServiceReplica {
	got, err := d.api.Deployment(d.Context(), d.id)
	if err != nil {
		return nil
	}
	return got.Rows
}

// replaced reports whether the deployment has two ready replicas, of which none is one of
// those before.
func (d *engineDrill) replaced(before []wire.ServiceReplica) bool {
	now := d.rows()
	for _, row := range now {
		for _, old := range before {
			if row.ExecutionID == old.ExecutionID {
				return false
			}
		}
		if !row.Ready {
			return false
		}
	}
	return len(now) == 2
}

// update gives the engine other arguments.
func (d *engineDrill) update(args string) (done func() bool) {
	d.Helper()
	before := d.rows()
	if _, err := d.api.UpdateDeployment(d.Context(), d.id, wire.DeploymentUpdate{Args: &args}); err != nil {
		d.Fatal(err)
	}
	return func() bool { return d.replaced(before) }
}

// drain drains the node of a replica, which then has none.
func (d *engineDrill) drain(host *nodetest.Process) (done func() bool) {
	d.Helper()
	id, err := compute.ParseNodeID(host.ID)
	if err != nil {
		d.Fatal(err)
	}
	if _, err := d.root.DrainNodeWithin(d.Context(), id, time.Hour); err != nil {
		d.Fatal(err)
	}
	return func() bool {
		now := d.rows()
		for _, row := range now {
			if !row.Ready || row.Node == nil || *row.Node == host.Config.Name {
				return false
			}
		}
		return len(now) == 2
	}
}

// askOften has four clients ask a node the same until stop, fewer than 6,000 times a minute, and
// reports every answer that is an error.
func (d *engineDrill) askOften(during string, by *nodetest.Process) (stop func()) {
	over := make(chan struct{})
	var group sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(50 * time.Millisecond):
				}
				req, err := http.NewRequestWithContext(d.Context(), http.MethodPost, by.URL+"/openai/v1/chat/completions",
					prompt(d.id.String(), "x", false))
				if err != nil {
					d.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+d.account.Key)
				answer, err := http.DefaultClient.Do(req)
				if err != nil {
					d.Errorf("during %s: %v", during, err)
					return
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), `"choices"`) {
					d.Errorf("during %s: %d: %s, %v", during, answer.StatusCode, body, err)
				}
				answered.Add(1)
			}
		})
	}
	return func() {
		close(over)
		group.Wait()
		if answered.Load() == 0 {
			d.Error("nothing was asked")
		}
	}
}
