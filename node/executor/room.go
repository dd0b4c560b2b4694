package executor

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"berth/compute"
	"berth/node/executor/egress"
)

const (
	readyRooms   = 4                // Networks made in advance, because making one would delay a start too much.
	roomRetry    = 10 * time.Second // Delay after a failure to make a network.
	tableNameLen = 6                // The kernel limits interface names to 15 bytes.
)

// room is the slot and the network of one attempt.
type room struct {
	slot    *slot
	network *os.File // nil for no network but lo.
	resolv  string   // The content of resolv.conf.
	notes   []string // For the output.
}

func (r *room) close() {
	r.slot.file.Close()
	if r.network != nil {
		r.network.Close()
	}
}

// rooms hands out rooms and keeps some with a network ready.
type rooms struct {
	table *egress.Table // nil if executions get no network.
	why   string        // The reason in that case, for executions that request one.
	log   *slog.Logger
	ready chan *room
}

// openRooms never fails. A missing network is logged, and reported to the
// executions that request one.
func openRooms(cfg Config, log *slog.Logger) *rooms {
	r := &rooms{log: log, ready: make(chan *room, readyRooms)}
	if cfg.Network == compute.NetworkNone {
		r.why = "this node gives executions no network"
		return r
	}
	var err error
	if r.table, err = egress.Open(tableName(cfg.Node), cfg.DenyCIDRs); err != nil {
		r.table, r.why = nil, "this node cannot give executions a network"
		log.Error("executions get no network on this node: nftables and veth are needed", "err", err)
	}
	return r
}

// take returns a room with the requested network. If this node has no network, the
// code starts without one, because most code needs none. Its output then says so.
func (r *rooms) take(network compute.Network) (*room, error) {
	if network == compute.NetworkNone || r.table == nil {
		s, err := takeSlot()
		if err != nil {
			return nil, err
		}
		made := &room{slot: s}
		if network != compute.NetworkNone {
			made.notes = []string{"network: none (" + r.why + ")"}
		}
		return made, nil
	}
	select {
	case made := <-r.ready:
		return made, nil
	default:
		return r.furnish()
	}
}

// furnish makes a room with a network.
func (r *rooms) furnish() (*room, error) {
	s, err := takeSlot()
	if err != nil {
		return nil, err
	}
	network, err := r.table.Network(s.number)
	if err != nil {
		s.file.Close()
		return nil, fmt.Errorf("furnish room: %w", err)
	}
	return &room{slot: s, network: network, resolv: r.table.Resolv()}, nil
}

// run keeps rooms ready until ctx ends.
func (r *rooms) run(ctx context.Context) {
	if r.table == nil {
		return
	}
	for {
		made, err := r.furnish()
		if err != nil {
			r.log.Warn("make a network ahead", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(roomRetry):
			}
			continue
		}
		select {
		case r.ready <- made:
		case <-ctx.Done():
			made.close()
			return
		}
	}
}

// deny replaces the addresses of the cluster.
func (r *rooms) deny(prefixes []netip.Prefix) error {
	if r.table == nil {
		return nil
	}
	return r.table.Deny(prefixes)
}

// close releases the rooms that nobody took. When idle, so that no attempt needs
// them, it also removes the rules.
func (r *rooms) close(idle bool) error {
	for {
		select {
		case made := <-r.ready:
			made.close()
			continue
		default:
		}
		break
	}
	if r.table == nil || !idle {
		return nil
	}
	return r.table.Close()
}
