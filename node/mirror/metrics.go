package mirror

import "github.com/prometheus/client_golang/prometheus"

// metrics are the collectors of this package. They are 0 on servers that do not lead.
type metrics struct {
	missing prometheus.Gauge
	failing prometheus.Gauge
}

// newMetrics makes and registers the collectors.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		missing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_mirror_missing",
			Help: "Blobs of code, archives, metrics and outputs without a copy in the object store, by the last round.",
		}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_mirror_failing", Help: "Whether the leader's last round of copies to the object store failed.",
		}),
	}
	reg.MustRegister(m.missing, m.failing)
	return m
}

// ended records how a round ended.
func (m *metrics) ended(err error) {
	m.failing.Set(0)
	if err != nil {
		m.failing.Set(1)
	}
}

func (m *metrics) clear() {
	m.missing.Set(0)
	m.failing.Set(0)
}
