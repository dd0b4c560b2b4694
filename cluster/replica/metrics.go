package replica

import "github.com/prometheus/client_golang/prometheus"

// metrics count damage.
type metrics struct {
	replaced   prometheus.Counter
	damaged    prometheus.Counter
	scrubbed   prometheus.Gauge
	miscounted prometheus.Counter
	quarantine prometheus.Gauge
}

// newMetrics registers the collectors.
func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		replaced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_raft_damaged_replicas_total",
			Help: "Damaged replicas that this process replaced by empty ones.",
		}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_raft_damaged_snapshots_total",
			Help: "Damaged snapshots found on this node's disk.",
		}),
		scrubbed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_raft_scrubbed_timestamp_seconds",
			Help: "Time of the last scrub that found the replica on disk intact or repaired it; 0 for none.",
		}),
		miscounted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_raft_damaged_states_total",
			Help: "Times that the state in memory differed from its stored hashes; " +
				"starts with those since it was last found right.",
		}),
		quarantine: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_raft_quarantine_bytes",
			Help: "Size of the quarantine: damaged and replaced replicas and snapshots.",
		}),
	}
	reg.MustRegister(m.replaced, m.damaged, m.scrubbed, m.miscounted, m.quarantine)
	return m
}

// newDiverged registers the collector of a Comparer.
func newDiverged(reg prometheus.Registerer) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_raft_replicas_diverged",
		Help: "Replicas that differ from the majority, or all if there is none, on the leader; 0 elsewhere.",
	})
	reg.MustRegister(g)
	return g
}
