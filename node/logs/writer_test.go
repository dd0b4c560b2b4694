package logs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
)

const noon = compute.Instant(1_800_000_000_000)

// small returns limits that tests reach quickly.
func small() Limits {
	return Limits{RingBytes: 32 << 10, BytesPerSecond: 1 << 30, LineBytes: 1 << 10}
}

func mustCreate(t testing.TB, path string, limits Limits) *Writer {
	t.Helper()
	w, err := Create(path, limits)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustWrite(t testing.TB, w *Writer, stream Stream, text string) {
	t.Helper()
	if err := w.Write(stream, noon, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func mustEnd(t testing.TB, w *Writer, final Final) {
	t.Helper()
	if err := w.Close(noon, final); err != nil {
		t.Fatal(err)
	}
}

// readAll returns the lines at path behind number after.
func readAll(t testing.TB, path string, after uint64) ([]Line, *Final) {
	t.Helper()
	r := newReader(path, after)
	defer mustClose(t, r)
	var all []Line
	for {
		lines, final, err := nextLines(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, lines...)
		if final != nil || len(lines) == 0 {
			return all, final
		}
	}
}

// nextLines returns the next large batch of a reader.
func nextLines(r *reader) ([]Line, *Final, error) {
	b := &batch{most: largeBatch()}
	final, err := r.next(b)
	return b.lines, final, err
}

func mustClose(t testing.TB, r *reader) {
	t.Helper()
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

func unmount(t testing.TB, dir string) {
	t.Helper()
	if err := syscall.Unmount(dir, 0); err != nil {
		t.Error(err)
	}
}

// text returns the bytes that a stream's lines stand for.
func text(lines []Line, stream Stream) string {
	var b strings.Builder
	for _, l := range lines {
		if l.Stream != stream {
			continue
		}
		b.Write(l.Text)
		if !l.Partial {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "1", SegmentName)
	w := mustCreate(t, path, small())
	mustWrite(t, w, Stdout, "one\ntw")
	mustWrite(t, w, Stderr, "oops\n")
	mustWrite(t, w, Stdout, "o\n\nlast")
	mustEnd(t, w, Final{ExitCode: -9, Error: "killed", Status: "failed"})
	lines, final := readAll(t, path, 0)
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%d %s %q %t", l.Seq, l.Stream, l.Text, l.Partial))
	}
	want := []string{
		`1 stdout "one" false`, `2 stderr "oops" false`, `3 stdout "two" false`,
		`4 stdout "" false`, `5 stdout "last" true`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if final == nil || *final != (Final{ExitCode: -9, Error: "killed", Status: "failed"}) {
		t.Errorf("got end %v", final)
	}
	if lines[0].At != noon {
		t.Errorf("got instant %v, want %v", lines[0].At, noon)
	}
	if s := w.Stats(); s != (Stats{Received: 18, ReceivedLines: 5, Lines: 5, Bytes: 14}) {
		t.Errorf("got stats %+v", s)
	}
}

// TestManyFollowersHoldLittle reads a flood with followers of which all but a few are left
// small batches, because the others do not return theirs.
func TestManyFollowersHoldLittle(t *testing.T) {
	dir := t.TempDir()
	w := mustCreate(t, Path(dir, testExecution(), 1), Limits{BytesPerSecond: 1 << 30})
	mustWrite(t, w, Stdout, strings.Repeat(strings.Repeat("x", 60)+"\n", 3000))
	mustEnd(t, w, Final{})
	s := Open(dir, nil)
	for range largeBatches {
		s.memory.large <- struct{}{}
	}
	total, most := 0, 0
	_, err := s.follow(t.Context(), attempt{testExecution(), 1}, 0, hooks{ended: always, idle: proceed, lines: func(l []Line) error {
		for i := range l {
			if total++; l[i].Seq != uint64(total) {
				t.Fatalf("line %d is number %d", total, l[i].Seq)
			}
		}
		most = max(most, len(l))
		return nil
	}})
	if err != nil || total != 3000 || most > smallBatch().lines {
		t.Errorf("%d lines, at most %d at once: %v", total, most, err)
	}
}

// TestBytesAreKept writes random bytes in random pieces and reads the same
// bytes back.
func TestBytesAreKept(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		path := filepath.Join(t.TempDir(), SegmentName)
		limits := small()
		limits.RingBytes, limits.LineBytes = 1<<20, 1+rnd.IntN(40)
		w := mustCreate(t, path, limits)
		var want [2]bytes.Buffer
		for range 200 {
			p := make([]byte, rnd.IntN(60))
			for i := range p {
				p[i] = "ab\n\xe2\x82\xac\xff"[rnd.IntN(7)]
			}
			stream := Stream(rnd.IntN(2))
			want[stream].Write(p)
			mustWrite(t, w, stream, string(p))
		}
		mustEnd(t, w, Final{})
		lines, _ := readAll(t, path, 0)
		for i, l := range lines {
			if l.Seq != uint64(i+1) || len(l.Text) > limits.LineBytes {
				t.Fatalf("seed %d: line %d has number %d and %d bytes", seed, i, l.Seq, len(l.Text))
			}
		}
		for s := range want {
			if got := text(lines, Stream(s)); got != want[s].String() {
				t.Fatalf("seed %d: %v: got %q, want %q", seed, Stream(s), got, want[s].String())
			}
		}
	}
}

// TestReadersHoldLittle reads output that was written at once: neither a record nor
// a batch is much larger than a read, and a reader keeps no buffer meanwhile.
func TestReadersHoldLittle(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, Limits{BytesPerSecond: 1 << 30})
	mustWrite(t, w, Stdout, strings.Repeat(strings.Repeat("x", 4<<10)+"\n", 256))
	mustEnd(t, w, Final{})
	r := newReader(path, 0)
	defer r.close()
	for final := (*Final)(nil); final == nil; {
		var lines []Line
		var err error
		if lines, final, err = nextLines(r); err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, l := range lines {
			size += len(l.Text)
		}
		if size > batchText+maxRecordText {
			t.Errorf("a batch of %d bytes", size)
		}
	}
}

func TestLongLineIsSplitBetweenRunes(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	limits := small()
	limits.LineBytes = 10
	w := mustCreate(t, path, limits)
	mustWrite(t, w, Stdout, strings.Repeat("€", 7)+"\n")
	mustEnd(t, w, Final{})
	lines, _ := readAll(t, path, 0)
	for i, want := range []string{"€€€", "€€€", "€"} {
		if got := string(lines[i].Text); got != want || lines[i].Partial != (i < 2) {
			t.Errorf("piece %d: got %q, partial %t", i, got, lines[i].Partial)
		}
	}
}

func TestStartOfLineIsWrittenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), SegmentName)
		w := mustCreate(t, path, small())
		mustWrite(t, w, Stdout, "name? \xe2\x82")
		if lines, _ := readAll(t, path, 0); len(lines) != 0 {
			t.Errorf("got %d lines before the delay", len(lines))
		}
		<-time.After(2 * partialDelay) // Fake time of the synctest bubble.
		synctest.Wait()
		lines, _ := readAll(t, path, 0)
		if len(lines) != 1 || string(lines[0].Text) != "name? " || !lines[0].Partial {
			t.Fatalf("got %v", lines)
		}
		mustWrite(t, w, Stdout, "\xac Anna\n")
		mustEnd(t, w, Final{})
		lines, _ = readAll(t, path, 0)
		if got := text(lines, Stdout); got != "name? € Anna\n" {
			t.Errorf("got %q", got)
		}
	})
}

// TestFloodKeepsItsEnd writes much at one instant. The log keeps the start, then a
// mark, then the last of each stream, whatever is written after.
func TestFloodKeepsItsEnd(t *testing.T) {
	synctest.Test(t, testFloodKeepsItsEnd) // However slow the machine is, no second passes.
}

func testFloodKeepsItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, Limits{RingBytes: 64 << 20, PacedBytes: 1, BytesPerSecond: 1 << 20})
	const total = 400_000
	size := 0
	mustWrite(t, w, Stderr, "early warning\n")
	for i := range total {
		text := fmt.Sprintf("line %d\n", i+1)
		size += len(text)
		mustWrite(t, w, Stdout, text)
	}
	mustWrite(t, w, Stderr, "Traceback: the reason\n")
	mustEnd(t, w, Final{ExitCode: 1})
	lines, _ := readAll(t, path, 0)
	if got := text(lines, Stderr); got != "early warning\nTraceback: the reason\n" {
		t.Errorf("stderr is %q", got)
	}
	out := text(lines, Stdout)
	if !strings.HasPrefix(out, "line 1\nline 2\n") || !strings.HasSuffix(out, fmt.Sprintf("line %d\n", total)) {
		t.Errorf("stdout is %.20q to %q", out, out[max(len(out)-20, 0):])
	}
	var marks, dropped int
	gap := 0 // Bytes of stdout behind the mark.
	for _, l := range lines {
		switch {
		case l.Stream == System:
			marks++
			if _, err := fmt.Sscanf(string(l.Text), "[berth: %d lines", &dropped); err != nil {
				t.Errorf("mark %q: %v", l.Text, err)
			}
		case l.Stream == Stdout && marks > 0:
			gap += len(l.Text) + 1
		}
	}
	if kept := strings.Count(out, "\n"); marks != 1 || kept+dropped != total {
		t.Errorf("%d marks, kept %d and dropped %d of %d lines", marks, kept, dropped, total)
	}
	if gap > tailBytes || gap < tailBytes-20 {
		t.Errorf("%d bytes are kept behind the mark, want %d", gap, tailBytes)
	}
	if s := w.Stats(); s.DroppedLines != int64(dropped) || s.DroppedBytes != int64(size-len(out)) {
		t.Errorf("stats %+v, want %d bytes dropped", s, size-len(out))
	}
}

// TestQuietStreamKeepsItsEnd writes a little to stderr and then so much to stdout that
// the ring drops it. It comes again at the end.
func TestQuietStreamKeepsItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, Limits{RingBytes: 1 << 20, LineBytes: 1 << 10})
	filler := strings.Repeat(strings.Repeat("x", 99)+"\n", 1000)
	for range 5 {
		mustWrite(t, w, Stdout, filler) // The start fills the head of the ring.
	}
	mustWrite(t, w, Stderr, "lost: \nthe reason\n")
	for range 20 {
		mustWrite(t, w, Stdout, filler)
	}
	mustEnd(t, w, Final{})
	lines, _ := readAll(t, path, 0)
	if got := text(lines, Stderr); !strings.HasSuffix(got, "the reason\n") {
		t.Errorf("stderr is %q", got)
	}
	var marks []string
	for _, l := range lines {
		if l.Stream == System {
			marks = append(marks, string(l.Text))
		}
	}
	if len(marks) != 2 || !strings.Contains(marks[0], "iB) dropped here: more output than is kept") ||
		!strings.Contains(marks[1], "of stderr again") {
		t.Errorf("marks %q", marks)
	}
}

// TestWriterSlowsTheCodeDown checks that up to PacedBytes nothing is dropped and that
// the pause keeps the rate.
func TestWriterSlowsTheCodeDown(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, Limits{RingBytes: 2 << 20, PacedBytes: 500_000, BytesPerSecond: 100_000})
	piece := strings.Repeat("y\n", 5000)
	at, waited := noon, time.Duration(0)
	for range 50 {
		if err := w.Write(Stdout, at, []byte(piece)); err != nil {
			t.Fatal(err)
		}
		waited += w.Pause()
		at = at.Add(w.Pause())
	}
	if want := 4 * time.Second; waited < want-10*time.Millisecond || waited > want+10*time.Millisecond {
		t.Errorf("half a megabyte at 100 kB/s waited %s, want %s after a burst of a second", waited, want)
	}
	mustEnd(t, w, Final{})
	lines, _ := readAll(t, path, 0)
	if got := text(lines, Stdout); got != strings.Repeat(piece, 50) {
		t.Errorf("%d of %d bytes are stored", len(got), 50*len(piece))
	}
}

func TestMarkComesWithoutFurtherOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), SegmentName)
		limits := small()
		limits.BytesPerSecond, limits.PacedBytes = 1000, 1
		w := mustCreate(t, path, limits)
		mustWrite(t, w, Stdout, strings.Repeat("x\n", 500))
		mustWrite(t, w, Stdout, strings.Repeat("y\n", tailBytes))
		<-time.After(2 * markDelay) // Fake time of the synctest bubble.
		synctest.Wait()
		lines, _ := readAll(t, path, 0)
		if len(lines) < 501 || lines[500].Stream != System || string(lines[len(lines)-1].Text) != "y" {
			t.Errorf("%d lines without a mark behind the first 500 and the end", len(lines))
		}
		mustWrite(t, w, System, "Berth speaks at any rate\n")
		mustEnd(t, w, Final{})
		lines, _ = readAll(t, path, 0)
		if last := lines[len(lines)-1]; string(last.Text) != "Berth speaks at any rate" {
			t.Errorf("got last line %q", last.Text)
		}
	})
}

// TestDroppedIsCounted counts lines and bytes correctly however a flood is cut
// into reads.
func TestDroppedIsCounted(t *testing.T) {
	for seed := range uint64(5) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		path := filepath.Join(t.TempDir(), SegmentName)
		w := mustCreate(t, path, Limits{RingBytes: 16 << 20, PacedBytes: 1, BytesPerSecond: 2000, LineBytes: 50})
		lines, size := 0, 0
		at := noon
		for size < 3*tailBytes {
			n := rnd.IntN(4000)
			lines++
			size += n + 1
			for text := strings.Repeat("x", n) + "\n"; text != ""; {
				cut := rnd.IntN(len(text) + 1)
				if err := w.Write(Stdout, at, []byte(text[:cut])); err != nil {
					t.Fatal(err)
				}
				text = text[cut:]
			}
			if rnd.IntN(1000) == 0 {
				at = at.Add(time.Second)
			}
		}
		mustEnd(t, w, Final{})
		all, _ := readAll(t, path, 0)
		kept := text(all, Stdout)
		s := w.Stats()
		if whole := strings.Count(kept, "\n"); whole+int(s.DroppedLines) != lines || len(kept)+int(s.DroppedBytes) != size {
			t.Errorf("seed %d: kept %d of %d lines and %d of %d bytes, stats %+v", seed, whole, lines, len(kept), size, s)
		}
	}
}

func BenchmarkFlood(b *testing.B) {
	w := mustCreate(b, filepath.Join(b.TempDir(), SegmentName), Limits{})
	flood := bytes.Repeat([]byte("y\n"), 32<<10)
	b.SetBytes(int64(len(flood)))
	for b.Loop() {
		if err := w.Write(Stdout, noon, flood); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLines(b *testing.B) {
	w := mustCreate(b, filepath.Join(b.TempDir(), SegmentName), Limits{BytesPerSecond: 1 << 40})
	lines := bytes.Repeat([]byte("a line of forty characters, more or less\n"), 1600)
	b.SetBytes(int64(len(lines)))
	for b.Loop() {
		if err := w.Write(Stdout, noon, lines); err != nil {
			b.Fatal(err)
		}
	}
}

func TestFloodIsBoundedOnDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, SegmentName)
	limits := small()
	w := mustCreate(t, path, limits)
	const total = 20_000
	for i := range total {
		mustWrite(t, w, Stdout, fmt.Sprintf("line %d\n", i+1))
		if i%1000 == 0 {
			if n := diskBytes(t, dir); n > diskFactor*limits.RingBytes {
				t.Fatalf("%d bytes on disk after %d lines, want at most %d", n, i, diskFactor*limits.RingBytes)
			}
		}
	}
	mustEnd(t, w, Final{})
	lines, final := readAll(t, path, 0)
	first, last := string(lines[0].Text), string(lines[len(lines)-1].Text)
	if final == nil || first != "line 1" || last != fmt.Sprintf("line %d", total) {
		t.Fatalf("got first %q, last %q, end %v", first, last, final)
	}
	var marks, missing int
	for i, l := range lines {
		if l.Stream == System {
			marks++
			missing = int(l.Seq - lines[i-1].Seq)
			want := fmt.Sprintf("[berth: %d lines (", missing)
			if !strings.HasPrefix(string(l.Text), want) {
				t.Errorf("got mark %q, want %q", l.Text, want)
			}
		} else if want := fmt.Sprintf("line %d", l.Seq); string(l.Text) != want {
			t.Fatalf("number %d is on %q", l.Seq, l.Text)
		}
	}
	if marks != 1 || len(lines)-1+missing != total {
		t.Errorf("got %d marks, %d lines and %d missing, want 1 mark and %d in all", marks, len(lines)-1, missing, total)
	}
}

func diskBytes(t testing.TB, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}

// TestTornTail resumes a file that ends anywhere behind its last whole record.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "whole")
	w := mustCreate(t, path, small())
	for i := range 6 {
		mustWrite(t, w, Stdout, fmt.Sprintf("line %d\n", i+1))
	}
	mustEnd(t, w, Final{ExitCode: 3})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		torn := filepath.Join(dir, fmt.Sprint(n), SegmentName)
		if err := os.MkdirAll(filepath.Dir(torn), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(torn, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		before, _ := readAll(t, torn, 0)
		w := mustCreate(t, torn, small())
		mustWrite(t, w, Stdout, "more\n")
		mustEnd(t, w, Final{ExitCode: 4})
		after, final := readAll(t, torn, 0)
		if len(after) != len(before)+1 || final == nil || final.ExitCode != 4 {
			t.Fatalf("cut at %d: %d lines, then %d, end %v", n, len(before), len(after), final)
		}
		for i, l := range after {
			want := fmt.Sprintf("line %d", i+1)
			if i == len(before) {
				want = "more"
			}
			if l.Seq != uint64(i+1) || string(l.Text) != want {
				t.Fatalf("cut at %d: line %d is number %d, %q", n, i, l.Seq, l.Text)
			}
		}
	}
	if _, err := Create(path, small()); !errors.Is(err, ErrEnded) || compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("got %v for complete output, want ErrEnded", err)
	}
}

// TestTornChunkChange loses nothing in a crash during the change to a new
// chunk.
func TestTornChunkChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, small())
	n := 0
	for w.ring.chunk < 2 {
		n++
		mustWrite(t, w, Stdout, fmt.Sprintf("line %d %s\n", n, strings.Repeat("x", 300)))
	}
	w.ring.lock.Close() // The writer dies.
	for size := int64(chunkReserve); size >= 0; size-- {
		if err := os.Truncate(chunkPath(path, 2), min(size, 20)); err != nil {
			t.Fatal(err)
		}
		before, _ := readAll(t, path, 0)
		w := mustCreate(t, path, small())
		mustWrite(t, w, Stdout, "more\n")
		w.ring.lock.Close()
		after, _ := readAll(t, path, 0)
		if len(after) != len(before)+1 || after[len(before)].Seq != uint64(len(before)+1) {
			t.Fatalf("second chunk of %d bytes: %d lines, then %d", size, len(before), len(after))
		}
	}
}

// TestReleaseUnlocks continues output although a child that is being forked still holds the
// file of its first writer.
func TestReleaseUnlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, small())
	held, err := syscall.Dup(int(w.ring.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(held)
	w.Release()
	mustCreate(t, path, small()).Release()
}

// TestReaderRereadsTornRecord reads a record that was torn at first, once the writer
// has finished it and is already in the next chunk.
func TestReaderRereadsTornRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, small())
	mustWrite(t, w, Stdout, "one\n")
	one := w.ring.size
	mustWrite(t, w, Stdout, "two\n")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, one+5); err != nil {
		t.Fatal(err)
	}
	r := newReader(path, 0)
	defer mustClose(t, r)
	if lines, _, err := nextLines(r); err != nil || len(lines) != 1 {
		t.Fatalf("got %d lines, %v", len(lines), err)
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.ring.roll(3, noon); err != nil {
		t.Fatal(err)
	}
	if more, err := r.skipDamage(); !more || err != nil || r.chunk != 0 {
		t.Errorf("got %t, %v, in chunk %d", more, err, r.chunk)
	}
	mustWrite(t, w, Stdout, "three\n")
	var got []string
	for range 3 {
		lines, _, err := nextLines(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			got = append(got, string(l.Text))
		}
	}
	if fmt.Sprint(got) != "[two three]" {
		t.Errorf("got %v", got)
	}
}

// TestDamageIsNeverReturned flips bits: a line is then missing, never wrong.
func TestDamageIsNeverReturned(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	limits := small()
	limits.RingBytes, limits.LineBytes = 16<<10, 512 // Chunks of 1 KiB.
	w := mustCreate(t, path, limits)
	n := 0
	for w.ring.chunk < 1 {
		n++
		mustWrite(t, w, Stdout, fmt.Sprintf("line %d %s\n", n, strings.Repeat("x", 200)))
	}
	mustEnd(t, w, Final{ExitCode: 3})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		bad := bytes.Clone(whole)
		bad[at] ^= 1 << (at % 8)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		lines, final := readAll(t, path, 0)
		seen := uint64(0)
		for _, l := range lines {
			want := fmt.Sprintf("line %d ", l.Seq)
			if l.Stream == Stdout && !strings.HasPrefix(string(l.Text), want) || l.Seq <= seen {
				t.Fatalf("bit of byte %d: number %d is on %q", at, l.Seq, l.Text)
			}
			seen = l.Seq
		}
		if final == nil || seen != uint64(n) {
			t.Fatalf("bit of byte %d: read until %d of %d, end %v", at, seen, n, final)
		}
	}
}

func TestOneWriterAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), SegmentName)
	w := mustCreate(t, path, small())
	if _, err := Create(path, small()); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("got %v for a second writer, want conflict", err)
	}
	mustEnd(t, w, Final{})
	if err := w.Write(Stdout, noon, []byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v for a write behind the end", err)
	}
	if err := w.Close(noon, Final{}); err != nil {
		t.Errorf("got %v for a second close", err)
	}
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small disk")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unmount(t, dir)
	path := filepath.Join(dir, SegmentName)
	w := mustCreate(t, path, Limits{})
	r := newReader(path, 0)
	defer mustClose(t, r)
	var followed []Line
	refused, written := 0, 0
	for refused < 3 {
		at := noon.Add(time.Duration(2*written) * time.Second)
		var text []byte
		for range 10 { // So that the disk accepts some of them.
			written++
			text = fmt.Appendf(text, "line %d %s\n", written, strings.Repeat("x", 200))
		}
		if err := w.Write(Stdout, at, text); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			refused++
		}
		lines, _, err := nextLines(r)
		if err != nil {
			t.Fatal(err)
		}
		followed = append(followed, lines...)
	}
	err := w.Close(noon, Final{})
	dropped := w.Stats().DroppedLines
	lines, final := readAll(t, path, 0)
	if err == nil && final == nil || err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("closed with %v, read end %v", err, final)
	}
	for i, l := range followed {
		if !bytes.Equal(l.Text, lines[i].Text) {
			t.Errorf("number %d was %.20q, is %.20q", l.Seq, l.Text, lines[i].Text)
		}
	}
	kept := 0
	for i, l := range lines {
		if l.Seq != uint64(i+1) {
			t.Fatalf("line %d is number %d", i, l.Seq)
		}
		if l.Stream == System {
			continue
		}
		if kept++; !strings.HasPrefix(string(l.Text), "line ") || len(l.Text) < 200 {
			t.Errorf("got %.20q, %d bytes", l.Text, len(l.Text))
		}
	}
	if kept+int(dropped) != written || dropped < 3 {
		t.Errorf("kept %d and dropped %d of %d", kept, dropped, written)
	}
}

func TestDiskHasSpaceAgain(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small disk")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unmount(t, dir)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 56<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "1", SegmentName)
	w := mustCreate(t, path, Limits{})
	at := noon
	write := func(text string) error {
		at = at.Add(2 * time.Second)
		return w.Write(Stdout, at, []byte(text))
	}
	lost := 0
	for write(strings.Repeat("x", 1000)+"\n") == nil {
		lost++
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := write("again\n"); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, w, Final{ExitCode: 7})
	lines, final := readAll(t, path, 0)
	refused, last := lines[len(lines)-2], lines[len(lines)-1]
	if len(refused.Text) != 1000 {
		t.Errorf("before the last line is %q, want what the disk refused first", refused.Text)
	}
	if string(last.Text) != "again" || last.Seq != uint64(lost+2) || final == nil {
		t.Errorf("got %q, number %d after %d lines, end %v", last.Text, last.Seq, lost, final)
	}
}

func TestLimitsAreChecked(t *testing.T) {
	for _, l := range []Limits{
		{LineBytes: -1}, {LineBytes: maxLineBytes + 1}, {BytesPerSecond: -1}, {RingBytes: 1 << 20},
	} {
		if _, err := Create(filepath.Join(t.TempDir(), SegmentName), l); compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("%+v: got %v, want invalid", l, err)
		}
	}
}
