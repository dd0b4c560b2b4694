package cluster

import (
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
)

// metrics are the collectors of this package.
type metrics struct {
	registerer prometheus.Registerer
	commit     prometheus.Histogram
	batch      prometheus.Histogram
	appends    prometheus.Histogram
	lag        *prometheus.GaugeVec
	voters     prometheus.Gauge
	answering  prometheus.Gauge
	seen       prometheus.Gauge
	held       prometheus.Gauge
	free       prometheus.Gauge
	ballast    prometheus.Gauge
	full       prometheus.Gauge
	terms      prometheus.Counter
	refused    prometheus.Counter
	ahead      prometheus.Gauge
	calls      *prometheus.CounterVec
}

// newMetrics registers the collectors.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		registerer: reg,
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "berth_raft_commit_seconds",
			Help:    "Time from handing an entry to Raft until it was applied, on the leader.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "berth_raft_entry_commands",
			Help:    "Commands per entry that this node committed as the leader.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		appends: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "berth_raft_fsync_seconds",
			Help:    "Time of one durable append to the log.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_raft_follower_lag_entries",
			Help: "Entries that a server trails the leader, as the leader measured.",
		}, []string{"node"}),
		voters: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_raft_voters",
			Help: "Servers that vote, on the leader; 0 elsewhere.",
		}),
		answering: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_raft_voters_answering",
			Help: "Voters that answer the leader, itself included; 0 elsewhere.",
		}),
		seen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_gossip_members", Help: "Nodes that gossip sees alive, this one included.",
		}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_raft_voters_held",
			Help: "Removed or silent voters that must stay for the quorum, on the leader.",
		}),
		free: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_disk_free_bytes",
			Help: "Free space on the file system of the data directory, as available to this process.",
		}),
		ballast: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_disk_ballast_bytes",
			Help: "Space held back for a full disk; 0 while it is dropped.",
		}),
		full: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_disk_full",
			Help: "1 while the disk is too full for commands that grow the state.",
		}),
		terms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_raft_terms_led_total",
			Help: "Terms in which this node led.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_cluster_connections_refused_total",
			Help: "Connections to the cluster port that were refused.",
		}),
		ahead: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_clock_ahead_seconds",
			Help: "By how much this node's clock is ahead of the cluster's time by the last heartbeat; negative when behind.",
		}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_cluster_calls_total",
			Help: "Calls of other nodes that this node answered.",
		}, []string{"method", "code"}),
	}
	reg.MustRegister(m.commit, m.batch, m.appends, m.lag, m.voters, m.answering, m.held, m.terms, m.refused, m.calls,
		m.ahead, m.seen, m.free, m.ballast, m.full)
	return m
}

// showVoters publishes the leader's count of the voters.
func (m *metrics) showVoters(voters, answering, held int) {
	m.voters.Set(float64(voters))
	m.answering.Set(float64(answering))
	m.held.Set(float64(held))
}

// showSpace publishes the last check of the disk.
func (m *metrics) showSpace(free int64, held bool, ballast int64, full bool) {
	m.free.Set(float64(free))
	m.ballast.Set(0)
	if held {
		m.ballast.Set(float64(ballast))
	}
	m.full.Set(0)
	if full {
		m.full.Set(1)
	}
}

// watch adds the metrics that are read from raft at scrape time.
func (m *metrics) watch(r *raft.Raft) {
	gauge := func(name, help string, value func() uint64) {
		m.registerer.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value()) }))
	}
	gauge("berth_raft_applied_index", "Newest entry handed to the state machine.", r.AppliedIndex)
	gauge("berth_raft_last_index", "Newest entry in the log.", r.LastIndex)
	gauge("berth_raft_term", "Newest term that this node knows of.", r.CurrentTerm)
}

// fsync notes a durable append.
func (m *metrics) fsync(took time.Duration) { m.appends.Observe(took.Seconds()) }

// call counts an answered call. A method without a handler counts under one common
// name: callers must not choose our labels.
func (m *metrics) call(method string, code compute.Code, _ time.Duration) {
	if code == compute.CodeNotFound {
		method = "unknown"
	}
	if code == "" {
		code = "ok"
	}
	m.calls.WithLabelValues(method, string(code)).Inc()
}
