package enginemetrics

import "github.com/prometheus/client_golang/prometheus"

// newDescs returns the metrics that a node has of engines. There is one series for each
// deployment with a replica on the node: replicas come and go, and would leave a series
// each.
func newDescs() (descs [figures]*prometheus.Desc) {
	for f, about := range [figures][2]string{
		running: {"requests_running", "Requests that engines on this node compute, as they say."},
		waiting: {"requests_waiting", "Requests that wait inside engines on this node, as they say."},
		cache: {
			"cache_usage_ratio",
			"Part of an engine's memory for contexts that is in use, 0 to 1. Of several replicas on this node, the fullest.",
		},
	} {
		descs[f] = prometheus.NewDesc("berth_inference_engine_"+about[0], about[1], []string{"deployment", "engine"}, nil)
	}
	return descs
}

// Describe implements prometheus.Collector.
func (r *Reader) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range r.descs {
		out <- desc
	}
}

// Collect implements prometheus.Collector: it asks no engine.
func (r *Reader) Collect(out chan<- prometheus.Metric) {
	r.mu.Lock()
	last := r.last // Never changed, only replaced.
	r.mu.Unlock()
	for of, read := range last {
		for f, known := range read.known {
			if known {
				out <- prometheus.MustNewConstMetric(r.descs[f], prometheus.GaugeValue, read.values[f], of.deployment, of.engine)
			}
		}
	}
}
