package live

import (
	"errors"
	"os"
	"testing"
	"time"

	"berth/boottime"
	"berth/compute"
)

func TestFinal(t *testing.T) {
	for code, want := range map[compute.Code]bool{
		compute.CodeConflict: true, compute.CodeNotFound: true, compute.CodeUnavailable: false, compute.CodeInternal: false,
	} {
		if got := final(compute.Errorf(code, "x")); got != want {
			t.Errorf("final(%s) = %v", code, got)
		}
	}
	if final(compute.Errorf(compute.CodeConflict, "x").Named("upgrade_required")) {
		t.Error("what servers do not understand yet is final")
	}
	if final(nil) || final(errors.New("x")) {
		t.Error("no code is final")
	}
}

// TestMayStart checks that an attempt does not start if its lease ran out at any
// time during the preparation, because the cluster may have rescheduled it
// elsewhere.
func TestMayStart(t *testing.T) {
	now := boottime.Now()
	for _, test := range []struct {
		name     string
		contacts []time.Duration // Before now.
		end      func(*Attempt)
		want     error
	}{
		{"in contact", []time.Duration{50 * time.Second}, nil, nil},
		{"in contact again and again", []time.Duration{50 * time.Second, time.Second}, nil, nil},
		{"cut off", []time.Duration{70 * time.Second}, nil, ErrCutOff},
		{"was cut off, and reached again", []time.Duration{70 * time.Second, 0}, nil, ErrCutOff},
		{"stopped", []time.Duration{0}, func(a *Attempt) { a.StopAs(compute.StopGraceful) }, ErrStopped},
		{"preempted", []time.Duration{0}, func(a *Attempt) { a.Preempt(time.Hour) }, ErrPreempted},
	} {
		a := &Attempt{lease: boottime.Lease{Grace: time.Minute}}
		for _, ago := range test.contacts {
			a.Contact(now - ago)
		}
		if test.end != nil {
			test.end(a)
		}
		if err := a.MayStart(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		if first := now - test.contacts[0]; errors.Is(test.want, ErrCutOff) && a.ReachedAt() != first {
			t.Errorf("%s: contact that came too late counts", test.name)
		}
	}
}

// TestOutputsPrefix gives each run of a GPU selection a folder.
func TestOutputsPrefix(t *testing.T) {
	for _, test := range []struct {
		kind    compute.Kind
		profile string
		repeat  int
		want    string
	}{
		{compute.KindPython, "gpu.h100", 0, "runs/7"},
		{compute.KindSubSelection, "gpu.h100", 1, "runs/7/h100"},
		{compute.KindSubSelection, "h100", 3, "runs/7/h100-3"},
	} {
		e := &compute.Execution{Kind: test.kind, Profile: test.profile, Repeat: test.repeat, OutputsPrefix: "runs/7"}
		if got := prefixOf(e); got != test.want {
			t.Errorf("%v on %s: %q, want %q", test.kind, test.profile, got, test.want)
		}
	}
}

// TestNotedOutputsPrefix reads where outputs go, also where that was not noted or is lost.
func TestNotedOutputsPrefix(t *testing.T) {
	d, k := NewDirs(t.TempDir(), nil), Key{Epoch: 1}
	if err := os.MkdirAll(d.Dir(k), 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(what, want string, bad bool) {
		t.Helper()
		if got, err := d.OutputsPrefix(k); got != want || (err != nil) != bad {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if err := d.NoteOutputsPrefix(k, new(compute.Execution)); err != nil {
		t.Fatal(err)
	}
	check("nowhere", "", false)
	if err := d.NoteOutputsPrefix(k, &compute.Execution{OutputsPrefix: "runs/7"}); err != nil {
		t.Fatal(err)
	}
	check("noted", "runs/7", false)
	if err := os.Truncate(d.File(k, prefixFile), 0); err != nil {
		t.Fatal(err)
	}
	check("lost", "", true)
}
