package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/wire"
	"berth/compute"
	"berth/fault"
	"berth/fsm"
)

// staleMax is how far behind a replica may be that answers
// ?consistency=stale while a leader is known.
const staleMax = 5 * time.Second

// readView sets the view that the request reads.
func (c *base) readView(r *request) error {
	if fault.Planted(fault.StaleAuth) {
		return c.staleView(r)
	}
	switch mode := r.args["consistency"]; {
	case mode == "stale" && r.route.method == fasthttp.MethodGet:
		return c.staleView(r)
	case slices.Contains([]string{"", "stale", "linearizable"}, mode):
		view, err := c.cfg.Reader.Read(r.ctx)
		if err != nil {
			return fmt.Errorf("read the state: %w", err)
		}
		r.stale = false
		return r.see(view)
	}
	f := new(wire.Faults)
	f.Add(wire.Fault{
		Type: "enum", Loc: []any{"query", "consistency"},
		Msg: "Input should be 'linearizable' or 'stale'",
		Ctx: map[string]any{"expected": "'linearizable' or 'stale'"},
	})
	return f
}

// staleView sets the view to the newest local one, if it is recent enough to
// check credentials.
func (c *base) staleView(r *request) error {
	view, lastContact, known := c.cfg.Reader.Stale()
	limit := staleMax
	if !known {
		limit = c.cfg.Limits.StaleAuthMax
	}
	if lastContact > limit {
		return compute.Errorf(compute.CodeUnavailable, "This node is too far behind the cluster.").Named("too_stale")
	}
	r.stale = true
	return r.see(view)
}

// see sets the request's view. Before the cluster is bootstrapped no credential
// can be checked, so the request is refused as unavailable.
func (r *request) see(view *fsm.View) error {
	if !view.Bootstrapped() {
		return compute.Errorf(compute.CodeUnavailable, "The cluster is being made.").
			Named("not_bootstrapped").Retry(time.Second)
	}
	r.view = view
	return nil
}

// openArchive returns a function that opens archives within ctx.
func (c *base) openArchive(ctx context.Context) fsm.OpenArchive {
	return func(a *fsm.Archive) (*fsm.ArchiveFile, error) { return c.cfg.Archives.Open(ctx, a) }
}

// queryMeta returns the node's index and its contact with the leader.
func (c *base) queryMeta() QueryMeta {
	if c.cfg.Relay != nil {
		return c.cfg.Relay.Status()
	}
	index, known, lastContact := c.cfg.Reader.Status()
	return QueryMeta{Index: index, KnownLeader: known, LastContact: lastContact.Milliseconds()}
}
