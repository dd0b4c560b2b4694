package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fsm"
)

// replicaCollector reads the replicas of deployments from the state at each scrape.
type replicaCollector struct {
	machine  *fsm.FSM
	replicas *prometheus.Desc
}

func newReplicaCollector(machine *fsm.FSM) prometheus.Collector {
	return &replicaCollector{machine, prometheus.NewDesc("berth_inference_replicas",
		"Replicas of models in the cluster, by published model and status: wanted or ready.",
		[]string{"model", "status"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *replicaCollector) Describe(out chan<- *prometheus.Desc) { out <- c.replicas }

// Collect implements prometheus.Collector. Deployments that are not published are one
// model, as in the metrics of requests.
func (c *replicaCollector) Collect(out chan<- prometheus.Metric) {
	const dedicated = "dedicated"
	view := c.machine.View()
	names := make(map[compute.ExecutionID][]string)
	type count struct{ wanted, ready int }
	counts := map[string]*count{dedicated: {}}
	for m := range view.Models() {
		names[m.Deployment] = append(names[m.Deployment], m.ID)
		counts[m.ID] = &count{}
	}
	for e := range view.Deployments {
		ready := readyReplicas(view, e)
		of := names[e.ID]
		if len(of) == 0 {
			of = []string{dedicated}
		}
		for _, name := range of {
			counts[name].wanted += e.Service.Replicas
			counts[name].ready += ready
		}
	}
	for name, n := range counts {
		out <- prometheus.MustNewConstMetric(c.replicas, prometheus.GaugeValue, float64(n.wanted), name, "wanted")
		out <- prometheus.MustNewConstMetric(c.replicas, prometheus.GaugeValue, float64(n.ready), name, "ready")
	}
}

// readyReplicas returns how many replicas of a deployment are ready and are not to stop.
func readyReplicas(view *fsm.View, e *compute.Execution) (ready int) {
	for _, slot := range e.Service.Slots {
		replica, known := view.AnyExecution(slot.Replica)
		if known && slot.Live && replica.Ready && replica.Stop == compute.StopNone {
			ready++
		}
	}
	return ready
}
