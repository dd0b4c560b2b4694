package edge

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
	"berth/fsm/archive"
)

// StaleMax is how far behind a replica may be that answers
// ?consistency=stale while a leader is known.
const StaleMax = 5 * time.Second

// ReadView sets the view that the request reads.
func (c *Core) ReadView(r *Request) error {
	if fault.Planted(fault.StaleAuth) {
		return c.staleView(r)
	}
	switch mode := r.args["consistency"]; {
	case mode == "stale" && r.route.Method == fasthttp.MethodGet:
		return c.staleView(r)
	case slices.Contains([]string{"", "stale", "linearizable"}, mode):
		view, err := c.cfg.Reader.Read(r.Ctx)
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

// Stale reports whether the request is answered from what this node knows.
func (r *Request) Stale() bool { return r.stale }

// staleView sets the view to the newest local one, if it is recent enough to
// check credentials.
func (c *Core) staleView(r *Request) error {
	view, lastContact, known := c.cfg.Reader.Stale()
	limit := StaleMax
	if !known {
		limit = c.cfg.Limits.StaleAuthMax
	}
	if lastContact > limit {
		return compute.Errorf(compute.CodeUnavailable, "This node is too far behind the cluster.").Named("too_stale")
	}
	r.stale, r.Ctx = true, compute.StayHere(r.Ctx)
	return r.see(view)
}

// see sets the request's view. Before the cluster is bootstrapped no credential
// can be checked, so the request is refused as unavailable.
func (r *Request) see(view *fsm.View) error {
	if !view.Bootstrapped() {
		return compute.Errorf(compute.CodeUnavailable, "The cluster is being made.").
			Named("not_bootstrapped").Retry(time.Second)
	}
	r.View = view
	return nil
}

// OpenArchive returns a function that opens archives within ctx.
func (c *Core) OpenArchive(ctx context.Context) fsm.OpenArchive {
	return func(a *archive.Record) (*archive.File, error) { return c.cfg.Archives.Open(ctx, a) }
}

// QueryMeta returns the node's index and its contact with the leader.
func (c *Core) QueryMeta() QueryMeta {
	if c.cfg.Relay != nil {
		return c.cfg.Relay.Status()
	}
	index, known, lastContact := c.cfg.Reader.Status()
	return QueryMeta{Index: index, KnownLeader: known, LastContact: lastContact.Milliseconds()}
}
