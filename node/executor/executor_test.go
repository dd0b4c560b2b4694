package executor_test

import (
	"testing"

	"berth/compute"
	"berth/node/executor"
)

func TestExecute(t *testing.T) {
	n := newNode(t, nil)
	o, out := n.execute(compute.Bundle{Code: "import sys\nprint('hello', sys.version_info[0])\nraise SystemExit(3)"}, nil)
	t.Logf("%+v\n%s", o, out)
}

func TestEgress(t *testing.T) {
	n := newNode(t, func(c *executor.Config) { c.Network = compute.NetworkEgress })
	o, out := n.execute(compute.Bundle{Code: "import subprocess\nprint(open('/proc/net/dev').read(), open('/proc/net/route').read(), open('/etc/resolv.conf').read())"}, func(w *compute.Work) { w.Execution.Network = compute.NetworkEgress })
	t.Logf("%+v\n%s", o, out)
}
