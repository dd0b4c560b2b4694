package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"berth/cluster"
	"berth/compute"
	"berth/fsm"
	"berth/node/config"
)

// Cluster returns the node's place in the cluster.
func (n *Node) Cluster() *cluster.Cluster { return n.cluster }

// Backups saves backups now and then.
type Backups struct{ b *backups }

// NewBackups returns what saves backups of a state machine.
func NewBackups(cfg config.Backup, id compute.UUID, machine *fsm.FSM, now func() time.Time) *Backups {
	b := newBackups(cfg, id, prometheus.NewRegistry())
	b.now, b.version = now, "test"
	b.view = func(context.Context) (*fsm.View, error) { return machine.View(), nil }
	return &Backups{b}
}

// Look saves one when it is due.
func (b *Backups) Look(ctx context.Context) { b.b.look(ctx) }

// Failures returns how often that failed.
func (b *Backups) Failures() float64 { return testutil.ToFloat64(b.b.failed) }

// Read has the state read by read.
func (b *Backups) Read(read func(context.Context) (*fsm.View, error)) { b.b.view = read }

// Room has the room of the file system told by free.
func (b *Backups) Room(free func(dir string) (free, total int64, err error)) { b.b.free = free }

// Tell has tell hear what is logged.
func (b *Backups) Tell(tell func(what string)) {
	b.b.logger = slog.New(listener{slog.DiscardHandler, tell})
}

// listener hears the messages of a log.
type listener struct {
	slog.Handler

	tell func(what string)
}

func (listener) Enabled(context.Context, slog.Level) bool { return true }

func (l listener) Handle(_ context.Context, r slog.Record) error {
	l.tell(r.Message)
	return nil
}
