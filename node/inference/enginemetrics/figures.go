package enginemetrics

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxBytes bounds the metrics of an engine. Those of vLLM take some 100 KiB.
const maxBytes = 1 << 20

// figure is one of those that are shown.
type figure int

const (
	running figure = iota
	waiting
	cache
	figures // How many there are.
)

// names returns which figure a metric of an engine is.
func names() map[string]figure {
	return map[string]figure{
		"vllm:num_requests_running":     running,
		"vllm:num_requests_waiting":     waiting,
		"vllm:kv_cache_usage_perc":      cache, // From 0 to 1 in spite of its name.
		"vllm:gpu_cache_usage_perc":     cache, // The same in older versions.
		"sglang:num_running_reqs":       running,
		"sglang:num_queue_reqs":         waiting,
		"sglang:token_usage":            cache,
		"llamacpp:requests_processing":  running,
		"llamacpp:requests_deferred":    waiting,
		"llamacpp:kv_cache_usage_ratio": cache,
		"llama_node_requests_running":   running,
		"llama_node_requests_waiting":   waiting,
	}
}

// reading has the figures that an engine reports.
type reading struct {
	values [figures]float64
	known  [figures]bool
}

// add counts a value of a figure. Several of one, as with data parallelism, are the sum of
// their requests and the fullest of their caches.
func (r *reading) add(f figure, value float64) {
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0) || value < 0:
		return
	case f == cache:
		value = max(value, r.values[f])
	default:
		value += r.values[f]
	}
	r.values[f], r.known[f] = value, true
}

// and returns r with the figures of another replica.
func (r reading) and(other *reading) reading {
	for f, known := range other.known {
		if known {
			r.add(figure(f), other.values[f])
		}
	}
	return r
}

// parse reads an engine's answer.
func parse(answer *http.Response) (out reading, err error) {
	if answer.StatusCode != http.StatusOK {
		return out, fmt.Errorf("the engine answers %d", answer.StatusCode)
	}
	body := &io.LimitedReader{R: answer.Body, N: maxBytes + 1}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	if body.N == 0 {
		return out, errors.New("the engine's metrics are too long")
	}
	if err != nil {
		return out, fmt.Errorf("read the engine's metrics: %w", err)
	}
	for name, f := range names() {
		for _, m := range families[name].GetMetric() {
			switch {
			case m.GetGauge() != nil:
				out.add(f, m.GetGauge().GetValue())
			case m.GetUntyped() != nil:
				out.add(f, m.GetUntyped().GetValue())
			}
		}
	}
	return out, nil
}
