package world

import (
	"strings"
	"testing"
)

func TestGauge(t *testing.T) {
	const text = "# HELP a_b\n# TYPE a_b gauge\na_b_c 7\na_b{x=\"y\"} 8\na_b 3\n"
	if got, err := gauge(strings.NewReader(text), "a_b"); err != nil || got != 3 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := gauge(strings.NewReader(text), "a"); err == nil {
		t.Error("a metric that is not there has a value")
	}
}
