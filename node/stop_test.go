package node

import (
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
	"berth/node/config"
)

// TestWorkerIsNotAlone holds that a worker of one server tells balancers that it
// stops, and waits for them.
func TestWorkerIsNotAlone(t *testing.T) {
	n := &Node{cfg: config.Config{Role: compute.RoleWorker.String()}} // It need not ask how many servers there are.
	if n.alone() {
		t.Error("a worker takes itself for the only node")
	}
}

func TestStopThatHangsEnds(t *testing.T) {
	for name, ends := range map[string]bool{"hangs": true, "ends by itself": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				died := make(chan time.Time, 1)
				d := stopDeadline{limit: stopLimit, fatal: func(error) { died <- time.Now() }}
				began := time.Now()
				d.begin()
				if !ends {
					d.end()
				}
				select {
				case at := <-died:
					if took := at.Sub(began); !ends || took != 20*time.Second {
						t.Errorf("ended by force after %v", took)
					}
				case <-time.After(time.Hour):
					if ends {
						t.Error("hangs for ever")
					}
				}
			})
		})
	}
}
