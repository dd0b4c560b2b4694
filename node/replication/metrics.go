package replication

import "github.com/prometheus/client_golang/prometheus"

// metrics are the collectors of this package.
type metrics struct {
	archives prometheus.Gauge
	missing  prometheus.Gauge
	full     prometheus.Gauge
	unplaced prometheus.Gauge
}

// newMetrics makes and registers the collectors.
func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	return &metrics{
		archives: gauge("berth_archives_missing",
			"Archives of old executions whose blob this server lacks, or cannot read, as far as it knows."),
		missing: gauge("berth_storage_missing",
			"Blobs of code and of files that this server should have and lacked after its last scan."),
		full: gauge("berth_storage_full",
			"Whether this server's disk had no space for a blob at its last scan: other servers take its share."),
		unplaced: gauge("berth_storage_unplaced",
			"Blobs that this full disk should have, and of which fewer copies than storage.replicas are on other servers."),
	}
}
