package journal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"berth/compute"
	"berth/node/executor/journal"
)

// outcome has every field set.
var outcome = compute.Outcome{
	Execution: compute.ExecutionID{UUID: compute.UUID{9}}, Epoch: 3, Status: compute.StatusFailed,
	Reason: compute.ReasonTimeout, Detail: "time limit \"of\" 1 s\nreached", Ran: true, ExitCode: 143,
	ExecletAt: 1, StartedAt: 2, EndedAt: 3, Duration: 4,
	Usage: compute.Usage{
		CPUTime: 5, PeakMemoryMiB: 6, GPUUtilPercent: 7, GPUMemoryMiB: 8, OutputBytes: 9, OutputLines: 10,
		PowerMilliW: 11, EnergyMilliJ: 12, Simulated: true, Samples: []compute.UsageSample{{AtMs: 13, UtilPercent: 14, MemoryMiB: 15, PowerWatt: 16}},
	},
	Outputs: &compute.Outputs{Manifest: compute.Hash{17}, Count: 18, Bytes: 19, Warning: "w"}, Digest: "sha256:20", Series: &compute.Hash{21},
}

func same(a, b compute.Outcome) bool { return reflect.DeepEqual(a, b) }

func create(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "journal")
	if err := journal.Create(name); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t *testing.T, name string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func TestJournal(t *testing.T) {
	for field, value := range reflect.ValueOf(outcome).Fields() {
		if value.IsZero() {
			t.Errorf("the test's outcome has no %s", field.Name)
		}
	}
	name := create(t)
	j := open(t, name)
	if s := j.State(); s.Starting || s.Outcome != nil {
		t.Fatalf("an empty journal says %+v", s)
	}
	if err := errors.Join(j.Starting(1), j.Started(2), j.Ended(outcome)); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(name); !errors.Is(err, journal.ErrHeld) {
		t.Errorf("a held journal is opened: %v", err)
	}
	s, err := journal.Read(name)
	if err != nil || !s.Starting || s.ExecletAt != 1 || s.StartedAt != 2 || s.Outcome == nil || !same(*s.Outcome, outcome) {
		t.Errorf("read %+v, %v", s, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if got := open(t, name).State(); got.Outcome == nil || !same(*got.Outcome, outcome) {
		t.Errorf("opened %+v", got)
	}
}

// TestTornJournal cuts a journal at every byte. Only complete lines count. The
// attempt counts as not started only when no line was begun. A line that is
// appended after the cut counts.
func TestTornJournal(t *testing.T) {
	name := create(t)
	j := open(t, name)
	if err := errors.Join(j.Starting(1), j.Started(2), j.Ended(outcome)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		torn := create(t)
		if err := os.WriteFile(torn, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		j := open(t, torn)
		if s := j.State(); s.Outcome != nil && !same(*s.Outcome, outcome) || s.StartedAt != 0 && s.StartedAt != 2 ||
			s.Starting != (n > 1) || s.NotStarted() != (n <= 1) {
			t.Fatalf("cut at %d it says %+v", n, s)
		}
		if err := j.Ended(outcome); err != nil {
			t.Fatal(err)
		}
		if s, err := journal.Read(torn); err != nil || s.Outcome == nil || !same(*s.Outcome, outcome) {
			t.Fatalf("appended to after a cut at %d it says %+v, %v", n, s, err)
		}
		j.Close()
	}
}

// TestFlippedBits flips every bit of a journal. The attempt never counts as not
// started, and the journal never yields a value that was not written.
func TestFlippedBits(t *testing.T) {
	name := create(t)
	j := open(t, name)
	if err := errors.Join(j.Starting(1), j.Started(2), j.Ended(outcome)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	flipped := create(t)
	for i := range 8 * len(whole) {
		data := bytes.Clone(whole)
		data[i/8] ^= 1 << (i % 8)
		if err := os.WriteFile(flipped, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := journal.Read(flipped)
		if err != nil || !s.Starting || s.Outcome != nil && !same(*s.Outcome, outcome) ||
			s.ExecletAt != 0 && s.ExecletAt != 1 || s.StartedAt != 0 && s.StartedAt != 2 {
			t.Fatalf("with bit %d flipped it says %+v, %v", i, s, err)
		}
		if !s.Damaged && (s.Outcome == nil || s.ExecletAt != 1 || s.StartedAt != 2) {
			t.Fatalf("with bit %d flipped something is missing, without a word: %+v", i, s)
		}
	}
}

// TestLines compares a journal file with the lines for journals that are not
// files.
func TestLines(t *testing.T) {
	name := create(t)
	j := open(t, name)
	if err := errors.Join(j.Starting(1), j.Started(2), j.Ended(outcome)); err != nil {
		t.Fatal(err)
	}
	var data []byte
	for _, line := range []func() ([]byte, error){
		func() ([]byte, error) { return journal.StartingLine(1) },
		func() ([]byte, error) { return journal.StartedLine(2) },
		func() ([]byte, error) { return journal.EndedLine(outcome) },
	} {
		text, err := line()
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, text...)
	}
	if whole, err := os.ReadFile(name); err != nil || !bytes.Equal(whole, data) {
		t.Errorf("the file has\n%s and the lines are\n%s: %v", whole, data, err)
	}
	if got := journal.Parse(data); !reflect.DeepEqual(got, j.State()) {
		t.Errorf("the lines say %+v, the journal %+v", got, j.State())
	}
}

func TestFirstOutcomeStands(t *testing.T) {
	name := create(t)
	j := open(t, name)
	second := outcome
	second.Status = compute.StatusCompleted
	if err := errors.Join(j.Ended(outcome), j.Ended(second)); err != nil {
		t.Fatal(err)
	}
	if s, err := journal.Read(name); err != nil || !same(*s.Outcome, outcome) {
		t.Errorf("read %+v, %v", s.Outcome, err)
	}
}

func TestDecode(t *testing.T) {
	data, err := journal.Encode(outcome)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := journal.Decode(data); err != nil || !same(got, outcome) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	for _, bad := range []string{"", "{", "null", `{"event":"starting","at_ms":1}`} {
		if _, err := journal.Decode([]byte(bad)); err == nil {
			t.Errorf("%q is decoded", bad)
		}
	}
}

// TestUnreadable checks that a journal which cannot be read does not count as one
// of an attempt that never started. /proc/self/mem can be opened, but its first
// page cannot be read.
func TestUnreadable(t *testing.T) {
	j, err := journal.Open("/proc/self/mem")
	if err != nil {
		t.Skip(err)
	}
	defer j.Close()
	if state := j.State(); !state.Starting || !state.Damaged {
		t.Errorf("it says %+v", state)
	}
}
