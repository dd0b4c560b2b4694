package replication

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
)

// Copies refuses removals of servers that may have the only copies of blobs.
type Copies struct {
	Cluster  *cluster.Cluster
	Machine  *fsm.FSM
	Read     func(ctx context.Context) (*fsm.View, error) // Has everything acknowledged before the call.
	Repairer *Repairer
	Logger   *slog.Logger
}

// methodMissing is the method that asks another server which blobs it still has
// to fetch before a third server leaves.
const methodMissing = "storage.lacking"

// Handle registers methodMissing.
func (c *Copies) Handle() { c.Cluster.Handle(methodMissing, cluster.Servers, c.serve) }

// Time limits of methodMissing, all of them within one request to the API.
const (
	settleWait = 2 * time.Second // A server's time to fetch missing blobs before it answers.
	settleAsk  = 3 * time.Second // The wait for the answer of one server.
	settleAll  = 7 * time.Second // The wait for all answers.
)

// query asks a remaining server what it lacks once another server is gone.
type query struct {
	Index  uint64           `cbor:"1,keyasint"` // Index of the state that the server must have applied.
	Leaver compute.NodeID   `cbor:"2,keyasint"`
	Silent []compute.NodeID `cbor:"3,keyasint,omitempty"` // Did not answer; their copies do not count.
}

// askMissing sends a query to a server.
type askMissing func(ctx context.Context, id compute.NodeID, q query) (Missing, error)

// Check refuses the removal of a server while the remaining servers that answer
// lack blobs of which it may have the only copies. It returns the servers that
// answered. When one of them is removed too, its answer is void.
func (c *Copies) Check(ctx context.Context, id compute.NodeID) (beside []compute.NodeID, err error) {
	view, err := c.Read(ctx) // Acknowledged blobs must not be lost.
	if err != nil {
		return nil, err
	}
	if leaver, ok := view.Node(id); !ok || leaver.Role != compute.RoleServer {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleAll)
	defer cancel()
	return missingWithout(ctx, view, id, c.ask)
}

// missingWithout asks the other servers what they lack without leaver. When
// some do not answer, or are too old to understand, it asks the rest again,
// which must do without the copies of those too. It returns the servers that
// answered.
func missingWithout(
	ctx context.Context, view *fsm.View, leaver compute.NodeID, ask askMissing,
) (beside []compute.NodeID, err error) {
	q := query{Index: view.Index(), Leaver: leaver}
	var stay []compute.NodeID
	for node := range view.Nodes() {
		switch {
		case node.Role != compute.RoleServer || node.ID == leaver:
		case node.State == compute.NodeUp:
			stay = append(stay, node.ID)
		default:
			q.Silent = append(q.Silent, node.ID)
		}
	}
	for {
		lacks, errs := askAll(ctx, stay, q, ask)
		var answer []compute.NodeID
		for i, id := range stay {
			if errs[i] != nil {
				q.Silent = append(q.Silent, id)
				continue
			}
			answer = append(answer, id)
		}
		if len(answer) == len(stay) {
			return stay, copiesRefusal(view, stay, lacks, q.Silent)
		}
		stay = answer
	}
}

// askAll asks several servers at the same time.
func askAll(
	ctx context.Context, servers []compute.NodeID, q query, ask askMissing,
) (lacks []Missing, errs []error) {
	lacks, errs = make([]Missing, len(servers)), make([]error, len(servers))
	var asked sync.WaitGroup
	for i, id := range servers {
		asked.Go(func() { lacks[i], errs[i] = ask(ctx, id, q) })
	}
	asked.Wait()
	return lacks, errs
}

// copiesRefusal returns an error that names the servers that lack blobs and
// those that did not answer. It returns nil when nothing is lacking.
func copiesRefusal(view *fsm.View, servers []compute.NodeID, lacks []Missing, silent []compute.NodeID) error {
	var lines []string
	for i, l := range lacks {
		if !l.None() {
			lines = append(lines, NodeName(view, servers[i])+" "+l.String())
		}
	}
	switch {
	case len(servers) == 0:
		lines = append(lines, "no other server says what it lacks")
	case len(lines) == 0:
		return nil
	}
	for _, id := range silent {
		lines = append(lines, "not counted is what "+NodeName(view, id)+" has, which does not say")
	}
	return compute.Errorf(compute.CodeConflict,
		"It may have the only copies of what others still bring: "+
			"wait for them, or force the removal and lose what it has alone. %s.",
		strings.Join(lines, "; ")).Named("copies_missing")
}

// serve answers another server's methodMissing from a state that is at least as
// new as the caller's.
func (c *Copies) serve(ctx context.Context, _ rpc.Peer, request []byte) ([]byte, error) {
	var q query
	if err := cbor.Unmarshal(request, &q); err != nil {
		// An older server does not report which server leaves. From a server that
		// lacks nothing it accepts an error as the answer. It takes this value for
		// "not known yet".
		return cbor.Marshal(Missing{})
	}
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	if _, err := c.Machine.Wait(ctx, q.Index); err != nil {
		return cbor.Marshal(Missing{}) // This server does not know yet which blobs it should have.
	}
	return cbor.Marshal(c.Repairer.Wait(ctx, q.Leaver, q.Silent))
}

// ask asks a server what it lacks. An older server refuses the question.
func (c *Copies) ask(ctx context.Context, id compute.NodeID, q query) (lacks Missing, err error) {
	request, err := cbor.Marshal(q)
	if err != nil {
		return Missing{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleAsk)
	defer cancel()
	data, err := c.Cluster.Call(ctx, id, methodMissing, request)
	if err == nil {
		err = cbor.Unmarshal(data, &lacks)
	}
	if err != nil {
		c.Logger.Debug("server does not report missing blobs", "node", id, "err", err)
	}
	return lacks, err
}

// NodeName returns the name of a node.
func NodeName(view *fsm.View, id compute.NodeID) string {
	if known, ok := view.Node(id); ok {
		return known.Name
	}
	return id.String()
}
