package prepare

import "github.com/prometheus/client_golang/prometheus"

// metrics are the package's collectors.
type metrics struct {
	silent prometheus.Gauge
	warm   prometheus.Counter
}

// newMetrics makes the collectors, and registers them unless reg is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		silent: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_executor_engine_silent", Help: "1 while the Docker engine of this node does not answer.",
		}),
		warm: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_executor_warm_total", Help: "Attempts that got a sandbox whose interpreter had started before.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.silent, m.warm)
	}
	return m
}
