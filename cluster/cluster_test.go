package cluster_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster"
	"berth/compute"
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

func TestMetrics(t *testing.T) {
	registries := map[string]*prometheus.Registry{}
	f := mustFleet(t, 2, func(c *cluster.Config) {
		r := prometheus.NewRegistry()
		c.Registerer, registries[c.Name] = r, r
	})
	leader := f.leader()
	f.follower(leader).mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 1})
	told := func() map[string]bool {
		families, err := registries[leader.cfg.Name].Gather()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, family := range families {
			seen[family.GetName()] = true
		}
		return seen
	}
	eventually(t, "every metric has a value", func() bool {
		seen := told()
		for _, name := range []string{
			"berth_raft_commit_seconds", "berth_raft_fsync_seconds", "berth_raft_applied_index", "berth_raft_last_index",
			"berth_raft_term", "berth_raft_follower_lag_entries", "berth_raft_entry_commands", "berth_raft_terms_led_total",
			"berth_cluster_calls_total", "berth_cluster_connections_refused_total",
		} {
			if !seen[name] {
				return false
			}
		}
		return cluster.Metric(t, registries[leader.cfg.Name], "berth_gossip_members") == 2
	})
	if _, err := leader.Transfer(t.Context(), compute.NodeID{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "who leads no more tells of no other server", func() bool {
		return !told()["berth_raft_follower_lag_entries"]
	})
}
