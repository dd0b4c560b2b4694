package fsm_test

import (
	"testing"
	"time"

	"berth/fsm/archive"
	"berth/fsm/command"
)

// BenchmarkArchive measures moving 1,000 executions of 4,000: the draft on the
// leader, and the command on every replica.
func BenchmarkArchive(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newestWorld(b)
		s := w.view().Settings()
		s.SignupGrant, s.Meter = 0, true
		w.must(command.SetSettings{Term: w.term, Settings: s})
		for range 4_000 {
			w.complete(w.submit("t4"), "n3", time.Second)
		}
		w.retain(0, 3_000)
		b.StartTimer()
		begun := b.Elapsed()
		d := w.view().DraftArchive(nil)
		drafted := b.Elapsed()
		d.Command.Term = w.term
		if r := w.must(d.Command); r.Count != archive.MaxExecutions {
			b.Fatalf("%d executions were archived", r.Count)
		}
		b.ReportMetric(float64((drafted-begun).Microseconds())/1000, "ms/draft")
		b.ReportMetric(float64((b.Elapsed()-drafted).Microseconds())/1000, "ms/apply")
		b.ReportMetric(float64(len(d.Blob))/archive.MaxExecutions, "B/execution")
	}
}
