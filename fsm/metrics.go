package fsm

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
)

// metrics reads the newest view at each scrape. Its counts are maintained on
// write, so a scrape costs the same however large the state is.
type metrics struct {
	fsm *FSM

	executions *prometheus.Desc
	pending    *prometheus.Desc
	archives   *prometheus.Desc
	archived   *prometheus.Desc
	overdue    *prometheus.Desc
	held       *prometheus.Desc
	estimates  *prometheus.Desc
	scale      *prometheus.Desc
	format     *prometheus.Desc
	preempted  *prometheus.Desc
	unbilled   *prometheus.Desc
	worth      *prometheus.Desc
	orgs       *prometheus.Desc
}

// Register adds the state's metrics to reg: executions by status and kind, the
// queue by reason, and held credits.
func (f *FSM) Register(reg prometheus.Registerer) error {
	m := &metrics{
		fsm: f,
		executions: prometheus.NewDesc("berth_executions",
			"Executions known to the state, without those in archives.", []string{"status", "kind"}, nil),
		archives: prometheus.NewDesc("berth_archives", "Archives of old executions.", nil, nil),
		archived: prometheus.NewDesc("berth_archived_executions", "Executions in archives.", nil, nil),
		overdue: prometheus.NewDesc("berth_archives_overdue_executions",
			"Executions past retention that should be in archives and are still in the state.", nil, nil),
		pending: prometheus.NewDesc("berth_queue_pending",
			"Executions that wait, by the reason why.", []string{"reason"}, nil),
		held: prometheus.NewDesc("berth_ledger_held_microcredits",
			"Credits set aside for live executions.", nil, nil),
		estimates: prometheus.NewDesc("berth_queue_estimates_total",
			"Executions that started by the time that a percentile of their estimate said (covered), or later.",
			[]string{"percentile", "covered"}, nil),
		scale: prometheus.NewDesc("berth_queue_estimate_scale_ratio",
			"Factor applied to estimates of starts, so that the percentile covers what it promises, by the GPUs asked for.",
			[]string{"percentile", "gpus"}, nil),
		format: prometheus.NewDesc("berth_state_format",
			"Format of the state: what every server of the cluster can apply.", nil, nil),
		preempted: prometheus.NewDesc("berth_preemptions_total",
			"Attempts that were asked to make room for a higher priority, by what came of it: made_room or ended_first.",
			[]string{"gpu_type", "outcome"}, nil),
		unbilled: prometheus.NewDesc("berth_unbilled_attempts_total",
			"Attempts that were placed and cost nothing, by the reason: failures of the system, and preemption.",
			[]string{"gpu_type", "reason"}, nil),
		worth: prometheus.NewDesc("berth_unbilled_microcredits_total",
			"Price of the time that those attempts lost.", []string{"gpu_type", "reason"}, nil),
		orgs: prometheus.NewDesc(
			"berth_org_info", "Organizations, with their slugs. The value is 1.", []string{"org", "slug"}, nil),
	}
	if err := reg.Register(m); err != nil {
		return fmt.Errorf("register state metrics: %w", err)
	}
	return nil
}

// Describe sends the descriptions of all metrics of Collect.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.executions
	out <- m.archives
	out <- m.archived
	out <- m.overdue
	out <- m.pending
	out <- m.held
	out <- m.estimates
	out <- m.scale
	out <- m.format
	out <- m.preempted
	out <- m.unbilled
	out <- m.worth
	out <- m.orgs
}

// Collect sends the values of the newest view. Every reason is sent, even at
// zero, so that an alert need not guess which reasons exist.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	view := m.fsm.View()
	c := &view.counts
	for status := range c.executions {
		for kind, n := range c.executions[status] {
			out <- gauge(m.executions, float64(n),
				compute.Status(status).String(), compute.Kind(kind).String())
		}
	}
	for i, n := range c.waiting {
		reason := compute.Reason(i)
		if !reason.Waits() {
			continue
		}
		out <- gauge(m.pending, float64(n), reason.String())
	}
	archives, archived := view.Archived()
	out <- gauge(m.archives, float64(archives))
	out <- gauge(m.archived, float64(archived))
	out <- gauge(m.overdue, float64(view.Overdue()))
	out <- gauge(m.held, float64(c.held))
	out <- gauge(m.format, float64(view.Format()))
	m.collectTallies(out, view)
	m.collectOrgs(out, view)
	known := view.Calibration()
	m.collectCoverage(out, "50", known.P50)
	m.collectCoverage(out, "90", known.P90)
	for class := range known.Sizes {
		scales := known.Sizes[class].Scales()
		out <- gauge(m.scale, float64(scales.P50)/compute.ScaleOne, "50", compute.SizeClassName(class))
		out <- gauge(m.scale, float64(scales.P90)/compute.ScaleOne, "90", compute.SizeClassName(class))
	}
}

// maxOrgSeries bounds the series of organizations.
const maxOrgSeries = 1_000

// collectOrgs sends the slugs of organizations, for boards: series of usage have their
// ids, which never change.
func (m *metrics) collectOrgs(out chan<- prometheus.Metric, view *View) {
	n := 0
	for o := range view.Orgs() {
		if n++; n > maxOrgSeries {
			return
		}
		out <- gauge(m.orgs, 1, o.ID.String(), o.Slug)
	}
}

// collectTallies sends the tallies. Series appear with the first event: as many
// as GPU types times reasons that occurred.
func (m *metrics) collectTallies(out chan<- prometheus.Metric, view *View) {
	for _, made := range []bool{true, false} {
		outcome := "made_room"
		if !made {
			outcome = "ended_first"
		}
		for t := range view.Preempted(made) {
			out <- counter(m.preempted, float64(t.Count), t.GPUType, outcome)
		}
	}
	for t := range view.Unbilled() {
		out <- counter(m.unbilled, float64(t.Count), t.GPUType, t.Reason.String())
		out <- counter(m.worth, float64(t.Worth), t.GPUType, t.Reason.String())
	}
}

// collectCoverage sends the coverage of one percentile of the estimates.
func (m *metrics) collectCoverage(out chan<- prometheus.Metric, percentile string, c compute.Coverage) {
	count := func(n uint64, covered string) {
		out <- counter(m.estimates, float64(n), percentile, covered)
	}
	count(c.Covered, "true")
	count(c.Total-c.Covered, "false")
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}
