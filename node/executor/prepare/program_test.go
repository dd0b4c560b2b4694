//go:build supervisor && !faults

package prepare

import (
	"log/slog"
	"testing"

	_ "berth/node/executor/early" // First: supervisors are this binary executed again.
	"berth/node/executor/program"
	"berth/node/executor/supervise"
)

// TestSupervisorWithoutItsProgram starts a supervisor of a program that cannot be executed
// any more: it executes this binary.
func TestSupervisorWithoutItsProgram(t *testing.T) {
	p, err := program.Open()
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	s := &supervisors{root: t.TempDir(), log: slog.New(slog.DiscardHandler), program: p}
	conn, err := s.start(supervise.Command)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close() // It ends.
}
