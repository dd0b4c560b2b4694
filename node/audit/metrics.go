package audit

import "github.com/prometheus/client_golang/prometheus"

// metrics are the collectors of this package.
type metrics struct{ failing prometheus.Gauge }

// newMetrics makes and registers the collectors.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{failing: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_audit_export_failing", Help: "Whether new lines of audit trails could not be written to log.audit_file.",
	})}
	reg.MustRegister(m.failing)
	return m
}
