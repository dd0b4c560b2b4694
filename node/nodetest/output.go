package nodetest

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"testing"
)

// output is where the nodes of one cluster log to: the test's own output. When
// the test ends it is searched for what must not be in any log.
type output struct {
	tb testing.TB

	mu sync.Mutex

	out     io.Writer // nil once the test has ended.
	all     bytes.Buffer
	secrets []string
}

// newOutput returns the output of tb. It must be made before the nodes, so
// that its end comes after theirs.
func newOutput(tb testing.TB) *output {
	o := &output{tb: tb, out: tb.Output()}
	tb.Cleanup(o.close)
	return o
}

// Write takes whole log lines; lines after the test's end are dropped.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out == nil {
		return len(p), nil
	}
	o.all.Write(p)
	return o.out.Write(p)
}

// hide names texts that must not be in the log.
func (o *output) hide(secrets ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.secrets = append(o.secrets, secrets...)
}

// logged reports whether a line has all texts.
func (o *output) logged(texts []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range bytes.Lines(o.all.Bytes()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !bytes.Contains(line, []byte(text)) }) {
			return true
		}
	}
	return false
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out = nil
	for _, secret := range o.secrets {
		if bytes.Contains(o.all.Bytes(), []byte(secret)) {
			o.tb.Errorf("a node logged a secret of %d characters that begins with %.4q", len(secret), secret)
		}
	}
}
