package supervise

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"berth/boottime"
	"berth/compute"
	"berth/node/executor/journal"
)

// TestLateContact checks that a contact in time moves the timer. A contact that
// waited in the socket while the supervisor was stopped does not extend the grace.
func TestLateContact(t *testing.T) {
	timer, err := newTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.close()
	s := &supervisor{lease: boottime.Lease{Grace: time.Minute}, contact: timer}
	now := boottime.Now()
	for _, test := range []struct{ at, want time.Duration }{
		{now - 10*time.Second, now + 50*time.Second},
		{now - 20*time.Second, now + 50*time.Second},
		{now - 61*time.Second, now + 50*time.Second},
	} {
		if err := s.renew(test.at); err != nil || s.lease.Until() != test.want {
			t.Errorf("contact %v ago: until %v from now, %v", now-test.at, s.lease.Until()-now, err)
		}
	}
	s.lease = boottime.Lease{Grace: time.Nanosecond}
	if err := s.renew(now); err != nil {
		t.Fatal(err)
	}
	hang := time.NewTimer(10 * time.Second)
	defer hang.Stop()
	select {
	case <-timer.C:
	case <-hang.C:
		t.Fatal("the timer did not fire at the end of the lease")
	}
	if err := s.renew(boottime.Now()); err != nil || s.lease.Until() != now+1 {
		t.Errorf("a contact after the end extended the lease to %v from now, %v", s.lease.Until()-now, err)
	}
}

// TestMayStart checks that the code does not start when a reason to end the
// attempt arrives while its sandbox is built.
func TestMayStart(t *testing.T) {
	timer, err := newTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.close()
	stop := func(how compute.Stop) command { return command{stop: how} }
	now := boottime.Now()
	for _, test := range []struct {
		name     string
		reached  time.Duration // Before now, by the spec.
		commands []command
		want     cause
	}{
		{"nothing came", 0, nil, causeNone},
		{"contact came", 59 * time.Second, []command{{contact: now}}, causeNone},
		{"a graceful stop", 0, []command{stop(compute.StopGraceful)}, causeStopped},
		{"a hard stop", 0, []command{{contact: now}, stop(compute.StopHard)}, causeAborted},
		{"both", 0, []command{stop(compute.StopGraceful), stop(compute.StopHard)}, causeAborted},
		{"preempted", 0, []command{{preempt: true, notice: time.Hour}}, causePreempted},
		{"preempted and stopped hard", 0, []command{{preempt: true}, stop(compute.StopHard)}, causeAborted},
		{"cut off", 2 * time.Minute, nil, causeNodeLost},
		{"was cut off, and reached again", 2 * time.Minute, []command{{contact: now}}, causeNodeLost},
		{"cut off and stopped", 2 * time.Minute, []command{stop(compute.StopGraceful)}, causeStopped},
	} {
		s := &supervisor{
			lease: boottime.Lease{Grace: time.Minute}, contact: timer, commands: make(chan command, maxCommands),
		}
		if err := s.renew(now - test.reached); err != nil {
			t.Fatal(err)
		}
		for _, c := range test.commands {
			s.commands <- c
		}
		if err := s.mayStart(); (err == nil) != (test.want == causeNone) || s.cause != test.want {
			t.Errorf("%s: %v for cause %d, want %d", test.name, err, s.cause, test.want)
		}
	}
}

// gone is a box of which only the process is known.
type gone struct {
	Box

	pid int
}

func (g gone) Process() int { return g.pid }

// TestEndBeforeItsPort has code that serves a port end before the supervisor reaches the port,
// or fails to reach it. In each case the outcome has a duration.
func TestEndBeforeItsPort(t *testing.T) {
	const noProcess = 1<<22 + 1 // Above the largest id that Linux gives.
	for _, test := range []struct {
		name  string
		pid   int
		fails error
		cause cause
		want  compute.Status
	}{
		{"ended", 0, nil, causeNone, compute.StatusCompleted},
		{"ended, which the box does not know", noProcess, nil, causeNone, compute.StatusCompleted},
		{"stopped while it started", noProcess, nil, causeStopped, compute.StatusCancelled},
		{"its port cannot be served", 0, errors.New("no port"), causeNone, compute.StatusSystemFailure},
		{"stopped, and its port cannot be served", 0, errors.New("no port"), causeStopped, compute.StatusCancelled},
	} {
		timer, err := newTimer()
		if err != nil {
			t.Fatal(err)
		}
		defer timer.close()
		file := filepath.Join(t.TempDir(), JournalFile)
		if err := journal.Create(file); err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		s := &supervisor{
			spec:    &Spec{Serving: &Serving{Port: 8000, ReadinessTimeout: time.Hour}, Container: &Container{}},
			journal: j, box: gone{pid: test.pid}, readiness: timer, now: time.Now, cause: test.cause, started: boottime.Now(),
		}
		if err := s.serveCode(); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.fails == nil { // The loop has heard of the end.
			s.ended = boottime.Now()
		}
		o := s.finish(ending{err: test.fails}, nil)
		if o.Status != test.want || !o.Ran || o.Duration < 0 || o.EndedAt < o.StartedAt || (o.ExitCode == 0) != (test.fails == nil) {
			t.Errorf("%s: the outcome is %+v", test.name, o)
		}
	}
}

// TestCgroupsOfTheNode has a supervisor use the cgroups that its node has found, and go on using them.
func TestCgroupsOfTheNode(t *testing.T) {
	var spec Spec
	if err := json.Unmarshal([]byte(`{"cgroups":{"dirs":{"pids":"/groups/berth"}}}`), &spec); err != nil {
		t.Fatal(err)
	}
	p := new(process)
	for _, s := range []*Spec{&spec, {}} {
		host, err := p.groups(s)
		if err != nil || host != spec.Cgroups || host.Dirs["pids"] != "/groups/berth" {
			t.Errorf("it uses %+v, %v", host, err)
		}
	}
}
