package edge

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the API's own metrics.
type metrics struct {
	seconds *prometheus.HistogramVec
	streams prometheus.Gauge
	waiting prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "berth_api_request_seconds",
			Help:    "Time from the first byte of a request to its answer, by route.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"route", "method", "code"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_api_streams",
			Help: "Output streams and held answers that are open.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_api_waiting_requests",
			Help: "Requests that wait for their turn to have a large body decoded or a large answer built.",
		}),
	}
	reg.MustRegister(m.seconds, m.streams, m.waiting)
	return m
}

// observe counts one answer. Requests without a route share one label, and so do methods and
// statuses that HTTP does not define, so that neither clients nor users' programs create series.
func (m *metrics) observe(r *Request, method string, status int, took time.Duration) {
	path, code := "none", strconv.Itoa(status)
	if r.route != nil {
		path, method = r.route.Path, r.route.Method
	}
	if !knownMethod(method) {
		method = "other"
	}
	if http.StatusText(status) == "" {
		code = "other"
	}
	m.seconds.WithLabelValues(path, method, code).Observe(took.Seconds())
}

// knownMethod reports whether method is one of HTTP's.
func knownMethod(method string) bool {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		return true
	}
	return false
}

// observe counts one answer, and logs it where the operator wants an access log.
func (s *Server) observe(r *Request, method string, status int, took time.Duration) {
	s.metrics.observe(r, method, status, took)
	if !s.cfg.Front.AccessLog {
		return
	}
	route := "none"
	if r.route != nil {
		route = r.route.Path // Not the path: it may hold a token.
	}
	r.Log(s.log).Info("request answered", "method", method, "route", route, "status", status, "took", took,
		"client", r.IP, "org", r.Caller.Actor.Org, "key", r.Caller.Actor.Key)
}
