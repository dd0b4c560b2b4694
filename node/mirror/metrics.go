package mirror

import "github.com/prometheus/client_golang/prometheus"

// metrics are the collectors of this package. They are 0 on servers that do not lead.
type metrics struct {
	missing prometheus.Gauge
	failing prometheus.Gauge
}

// newMetrics makes and registers the collectors.
func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	return &metrics{
		missing: gauge("berth_mirror_missing",
			"Blobs of code, archives, metrics and outputs that had no copy in the object store after the leader's last round."),
		failing: gauge("berth_mirror_failing", "Whether the leader's last round of copies to the object store failed."),
	}
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
