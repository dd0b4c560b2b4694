package cluster_test

import (
	"testing"
)

func TestThreePeersAgree(t *testing.T) {
	f := mustFleet(t, 3, nil)
	for i, p := range f.peers {
		result, index := p.mustPropose(t, toyCommand{Op: p.cfg.Name, Key: "k", Value: int64(i)})
		if result == "" || index == 0 {
			t.Errorf("%s got result %q at %d", p.cfg.Name, result, index)
		}
		for _, q := range f.peers {
			if got := q.mustRead(t, "k"); got != int64(i) {
				t.Errorf("%s reads %d after %s wrote %d", q.cfg.Name, got, p.cfg.Name, i)
			}
		}
	}
}
