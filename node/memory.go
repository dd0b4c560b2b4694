package node

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"berth/fsm"
	"berth/loop"
)

// Memory of the Go runtime, in bytes, from which on garbage is collected more often
// than usual. What a state needs is estimated generously: this is about clients.
const (
	clientMemory    = 104 << 20 // Of a node with an empty state.
	executionMemory = 16 << 10  // A finished one takes 1 KiB, its indexes included.
	entryMemory     = 1 << 10   // Of a ledger.
	memoryPeriod    = 10 * time.Second
)

// boundMemory keeps the process small while clients have it hold all that their
// limits allow. Usually garbage may take as much memory as what is in use. The
// operator's GOMEMLIMIT comes first.
func (n *Node) boundMemory(ctx context.Context) error {
	if os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	loop.Every(ctx, memoryPeriod, func() { debug.SetMemoryLimit(memoryLimit(n.machine.View().Summary())) })
	return nil
}

// memoryLimit returns the soft limit of memory for a node with a state.
func memoryLimit(state fsm.Summary) int64 {
	return clientMemory + executionMemory*int64(state.Executions) + entryMemory*int64(state.Entries)
}
