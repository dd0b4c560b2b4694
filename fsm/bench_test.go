package fsm_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// BenchmarkSubmit measures one submit of a full queue, in entries of 64 as the
// leader batches them.
func BenchmarkSubmit(b *testing.B) {
	w := newEmptyWorld(b)
	s := settings()
	s.Queued, s.Meter = 0, true
	w.bootstrap(s)
	w.addNode("n3", "t4", "t4")
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	const entry = 64
	var frames [][]byte
	for range b.N {
		c := w.python("t4")
		c.Execution.Bundle.Inline = make([]byte, 500)
		c.Execution.Bundle.Hash = sha256.Sum256(c.Execution.Bundle.Inline)
		frames = append(frames, w.frame(c))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for len(frames) > 0 {
		n := min(entry, len(frames))
		w.index++
		for _, r := range w.fsm.ApplyFrames(w.index, frames[:n]...) {
			if r.Refusal != nil {
				b.Fatal(r.Refusal)
			}
		}
		frames = frames[n:]
	}
}

// BenchmarkEncode measures the frame of one submit, as its proposer makes it.
func BenchmarkEncode(b *testing.B) {
	w := newWorld(b)
	c := w.python("t4")
	c.Execution.Bundle.Inline = make([]byte, 500)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := command.Encode(c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExecution measures all entries of one execution, each published
// separately.
func BenchmarkExecution(b *testing.B) {
	w := newWorld(b)
	w.must(command.SetSettings{Term: 1, Settings: command.Settings{Meter: true}})
	b.ReportAllocs()
	for range b.N {
		w.complete(w.submit("t4", func(e *compute.Execution) { e.Timeout = time.Minute }), "n3", time.Second)
	}
}

// BenchmarkRestore measures a restart with 20,000 finished executions.
func BenchmarkRestore(b *testing.B) {
	w := newWorld(b)
	w.must(command.SetSettings{Term: 1, Settings: command.Settings{Meter: true}})
	for range 20_000 {
		w.complete(w.submit("t4"), "n3", time.Second)
	}
	data := w.snapshot()
	b.ReportMetric(float64(len(data))/20_000, "bytes/execution")
	b.ResetTimer()
	for range b.N {
		if _, err := restore(data); err != nil {
			b.Fatal(err)
		}
	}
}
