package edge

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// dedicated is the model of metrics for all deployments that are not published:
// organizations create those, so that their names would be series without a bound.
const dedicated = "dedicated"

// Kinds of tokens.
const (
	promptTokens     = "prompt"
	completionTokens = "completion"
)

// modelMetrics are the metrics of requests to models. Each is by the id of the published
// model, which only operators choose.
type modelMetrics struct {
	requests *prometheus.CounterVec
	running  *prometheus.GaugeVec
	waiting  *prometheus.GaugeVec
	queued   *prometheus.HistogramVec
	first    *prometheus.HistogramVec
	each     *prometheus.HistogramVec
	seconds  *prometheus.HistogramVec
	tokens   *prometheus.CounterVec
}

func newModelMetrics(reg prometheus.Registerer) *modelMetrics {
	m := &modelMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_inference_requests_total",
			Help: "Requests to models that this node answered, by published model and status.",
		}, []string{"model", "code"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_inference_requests_running",
			Help: "Requests to models that this node is answering, those that wait for a replica included.",
		}, []string{"model"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_inference_requests_waiting",
			Help: "Requests to models on this node that wait because all replicas are busy.",
		}, []string{"model"}),
		queued: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "berth_inference_queue_time_seconds",
			Help:    "Time that requests to models waited because all replicas were busy.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"model"}),
		first: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "berth_inference_time_to_first_token_seconds",
			Help:    "Time from a request for a stream to its first event.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"model"}),
		each: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "berth_inference_time_per_output_token_seconds",
			Help:    "Time for each completion token after the first one, of streams; dedicated ones count events.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
		}, []string{"model"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "berth_inference_request_duration_seconds",
			Help:    "Time from a request to a model to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
		}, []string{"model"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_inference_tokens_total",
			Help: "Tokens of published models that this node charged for, by type: prompt or completion.",
		}, []string{"model", "type"}),
	}
	reg.MustRegister(m.requests, m.running, m.waiting, m.queued, m.first, m.each, m.seconds, m.tokens)
	return m
}

// label returns the model of the call in metrics.
func (c *modelCall) label() string {
	if c.published != nil {
		return c.published.ID
	}
	return dedicated
}

// begin counts the request as running. The function that it returns counts its end,
// and logs it where the operator wants an access log. Neither prompts nor answers
// are logged.
func (c *modelCall) begin() (end func()) {
	label := c.label()
	c.models.running.WithLabelValues(label).Inc()
	return func() {
		took := c.took(c.r)
		c.models.seconds.WithLabelValues(label).Observe(took.Seconds())
		c.models.running.WithLabelValues(label).Dec()
		if !c.cfg.Front.AccessLog {
			return
		}
		deployment := ""
		if c.model != nil {
			deployment = c.model.ID.String()
		}
		c.r.Log(c.log).Info("model answered", "model", label, "deployment", deployment, "stream", c.asked.Stream,
			"first", c.streamed, "took", took, "tokens", c.used, "org", c.r.Caller.Actor.Org, "key", c.r.Caller.Actor.Key)
	}
}

// observeModel counts the answer to a request that named a model.
func (c *modelCall) observeModel(status int) {
	if c.asked.Model == "" {
		return
	}
	c.models.requests.WithLabelValues(c.label(), strconv.Itoa(status)).Inc()
	if status < http.StatusBadRequest && c.asked.Stream {
		c.streamed = c.took(c.r)
		c.models.first.WithLabelValues(c.label()).Observe(c.streamed.Seconds())
	}
}

// observeTokens counts what is charged for.
func (c *modelCall) observeTokens(prompt, completion int64) {
	c.used = prompt + completion
	c.observeEvents(completion)
	c.models.tokens.WithLabelValues(c.label(), promptTokens).Add(float64(prompt))
	c.models.tokens.WithLabelValues(c.label(), completionTokens).Add(float64(completion))
}

// observeEvents measures the time between the tokens of a stream that has so many.
func (c *modelCall) observeEvents(tokens int64) {
	if c.asked.Stream && tokens > 1 {
		c.models.each.WithLabelValues(c.label()).Observe((c.took(c.r) - c.streamed).Seconds() / float64(tokens-1))
	}
}
