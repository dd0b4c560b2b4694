package scheduler

import "github.com/prometheus/client_golang/prometheus"

// metrics are the collectors of a Loop.
type metrics struct {
	decision      prometheus.Histogram
	fragmentation prometheus.Gauge
}

// newMetrics returns collectors that are registered at reg.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "berth_scheduler_decision_seconds",
			Help:    "Time from one view to its plan: one pass over the queue.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 4, 12), // 1 µs to 4 s.
		}),
		fragmentation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_scheduler_fragmentation_ratio",
			Help: "Share of the free GPU that cannot be given as whole GPUs: it is " +
				"on partly used devices, or lacks vCPU or memory.",
		}),
	}
	reg.MustRegister(m.decision, m.fragmentation)
	return m
}
