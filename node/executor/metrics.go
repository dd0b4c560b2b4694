package executor

import "github.com/prometheus/client_golang/prometheus"

// metrics are the package's collectors.
type metrics struct {
	live    prometheus.Gauge
	ended   *prometheus.CounterVec
	start   prometheus.Histogram
	outbox  prometheus.Gauge
	retries prometheus.Counter
	reaped  *prometheus.CounterVec
	adopted prometheus.Counter
}

// newMetrics makes the collectors, and registers them unless reg is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		live: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_executor_attempts", Help: "Attempts in preparation or supervised on this node.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_executor_ended_total", Help: "Attempts that ended on this node.",
		}, []string{"status", "reason"}),
		start: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "berth_executor_start_seconds", Help: "From seeing an attempt to its code being started.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 15, 60},
		}),
		outbox: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_executor_outbox_outcomes", Help: "Outcomes of ended attempts that the state does not have yet.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_executor_report_retries_total", Help: "Reports to the state that had to be repeated.",
		}),
		reaped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_executor_reaped_total", Help: "Remains of ended attempts that were removed.",
		}, []string{"kind"}),
		adopted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_executor_adopted_total", Help: "Attempts taken over from an earlier node process.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.live, m.ended, m.start, m.outbox, m.retries, m.reaped, m.adopted)
	}
	return m
}
