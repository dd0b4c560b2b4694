package edge

import (
	"strconv"
	"time"

	"berth/api/wire"
)

// maxWait is how long an answer is held at most.
const maxWait = 60 * time.Second

// ParseWait parses the parameter wait: 30s, or 30.
func ParseWait(text string) (time.Duration, error) {
	f := new(wire.Faults)
	d, err := time.ParseDuration(text)
	if n, bad := strconv.ParseFloat(text, 64); bad == nil && n >= 0 && n < 1e6 {
		d, err = time.Duration(n*float64(time.Second)), nil
	}
	switch {
	case err != nil || d < 0:
		f.Value("a duration such as 30s", "query", "wait")
	case d > maxWait:
		f.AtMost(int64(maxWait/time.Second), "query", "wait")
	}
	return d, f.Err()
}

// waitOf returns the time that the client asks to hold its answer.
func waitOf(r *Request) time.Duration {
	wait, err := ParseWait(r.args["wait"])
	if err != nil {
		return 0
	}
	return min(wait, maxWait)
}
