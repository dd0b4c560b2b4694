package executor_test

import (
	"testing"

	"berth/compute"
)

func TestExecute(t *testing.T) {
	n := newNode(t, nil)
	o, out := n.execute(compute.Bundle{Code: "import sys\nprint('hello', sys.version_info[0])\nraise SystemExit(3)"}, nil)
	t.Logf("%+v\n%s", o, out)
}
