package executor_test

import (
	"strings"
	"testing"
	"time"

	"berth/compute"
)

// aware is code that waits for its notice and for SIGTERM, and prints both.
const aware = `
import os, signal, sys, time
path = os.environ["BERTH_PREEMPT_FILE"]
def term(*_):
    print("terminated")
    sys.exit(0)
signal.signal(signal.SIGTERM, term)
print("here")
while not os.path.exists(path):
    time.sleep(0.01)
print("notice", open(path).read())
`

func TestPreemption(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	const forever = "while True: time.sleep(1)\n"
	for _, test := range []struct {
		name    string
		code    string
		notice  time.Duration
		want    ending
		output  []string
		retried bool // It is not preemptible, but moves when its node is drained.
	}{
		{
			"code that is retried saves its work", aware + forever, 2 * time.Second,
			ending{compute.StatusSystemFailure, compute.ReasonPreempted, "", 0},
			[]string{"notice", "terminated"},
			true,
		},
		{
			"code that saves its work", aware + forever, 2 * time.Second,
			ending{compute.StatusSystemFailure, compute.ReasonPreempted, "made room for work of a higher priority", 0},
			[]string{"here", `notice {"sigterm_in_seconds":2,"sigkill_after_seconds":`, "terminated"},
			false,
		},
		{
			"code that knows nothing", "import time\nprint('here', flush=True)\n" + forever, 0,
			ending{compute.StatusSystemFailure, compute.ReasonPreempted, "", 143},
			[]string{"preempted: SIGTERM in 0 s"},
			false,
		},
		{
			"code that does not listen", "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('here')\n" + forever, 0,
			ending{compute.StatusSystemFailure, compute.ReasonPreempted, "", 137},
			nil, false,
		},
		{
			"code that ends within the notice", aware, time.Hour,
			ending{compute.StatusCompleted, compute.ReasonNone, "", 0},
			[]string{"notice"},
			false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := n.as(t)
			w := n.newWork(compute.Bundle{Code: test.code})
			w.Execution.Preemptible = !test.retried
			if test.retried {
				w.Execution.MaxRetries = 1
			}
			id := n.place(w)
			await(t, "the start", func() bool { return n.started(id) && strings.Contains(n.output(id), "here") })
			n.update(func() { n.work[id].Attempt.PreemptAt, n.work[id].Attempt.Notice = 1, test.notice })
			test.want.check(t, n.end(id))
			for _, text := range test.output {
				if !strings.Contains(n.output(id), text) {
					t.Errorf("the output has no %q:\n%s", text, n.output(id))
				}
			}
		})
	}
	t.Run("before the start", func(t *testing.T) {
		t.Parallel()
		n := n.as(t)
		w := n.newWork(compute.Bundle{Code: "print('started')"})
		w.Attempt.PreemptAt = 1
		o := n.end(n.place(w))
		if o.Status != compute.StatusSystemFailure || o.Reason != compute.ReasonPreempted || o.Ran {
			t.Errorf("ended as %s for %s, ran %v", o.Status, o.Reason, o.Ran)
		}
	})
}
