package storage

import (
	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
)

// metrics are the collectors of this package.
type metrics struct {
	operations *prometheus.CounterVec
	damaged    prometheus.Counter
}

// newMetrics makes and registers the collectors.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_storage_operations_total",
			Help: "Operations on blobs that began on this node, by kind and code (ok when they worked).",
		}, []string{"kind", "code"}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_storage_damaged_total",
			Help: "Blobs on this node's disk that were found damaged.",
		}),
	}
	reg.MustRegister(m.operations, m.damaged)
	return m
}

// count counts one operation.
func (m *metrics) count(kind string, err error) {
	code := string(compute.CodeOf(err))
	if err == nil {
		code = "ok"
	}
	m.operations.WithLabelValues(kind, code).Inc()
}
