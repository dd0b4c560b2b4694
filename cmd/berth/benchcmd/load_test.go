package benchcmd

import (
	"strings"
	"testing"

	"berth/cmd/berth/cli"
)

func TestBenchLoadRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"idle --window 0s":               "--window 1s or more",
		"executions --alone 0":           "must be 1 or more",
		"executions --waiting -1":        "--waiting and --foreign-mounts 0 or more",
		"executions --foreign-mounts -1": "--foreign-mounts 0 or more",
		"api --submits 0":                "must be 1 or more",
		"api --read-for 10ms":            "--read-for 1s or more",
		"api --sweep 1,0":                "--sweep 1 to 4096",
		"executions --clients x":         "invalid argument",
		"inference --turns 1":            "--turns 2 or more",
	} {
		r := execute(t, "", append([]string{"bench"}, strings.Fields(args)...)...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Errors, want) {
			t.Errorf("%s: exit code %d, %s", args, r.Code, r.Errors)
		}
	}
}
