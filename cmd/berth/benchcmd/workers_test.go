package benchcmd

import (
	"strings"
	"testing"

	"berth/cmd/berth/cli"
)

func TestBenchWorkersRefuses(t *testing.T) {
	r := execute(t, "", "bench", "workers", "--workers", "251")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Errors, "--workers: 251 is not 1 to 250") {
		t.Errorf("exit code %d, %s", r.Code, r.Errors)
	}
}
