package executor

import (
	"context"
	"log/slog"
	"os"

	"berth/compute"
)

// room is what one attempt has of the machine to itself.
type room struct {
	slot    *slot
	network *os.File // nil for no network but lo.
	resolv  string   // The text of resolv.conf.
	notes   []string // To be said in the output.
}

func (r *room) close() {
	r.slot.file.Close()
	if r.network != nil {
		r.network.Close()
	}
}

// rooms gives out rooms.
type rooms struct {
	cfg Config
	log *slog.Logger
}

func openRooms(cfg Config, log *slog.Logger) *rooms {
	return &rooms{cfg: cfg, log: log}
}

func (r *rooms) take(network compute.Network) (*room, error) {
	s, err := takeSlot()
	if err != nil {
		return nil, err
	}
	return &room{slot: s}, nil
}

func (r *rooms) run(ctx context.Context) { <-ctx.Done() }

func (r *rooms) close(idle bool) error { return nil }
