package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/cluster"
	"berth/cluster/membership"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/node/storage"
)

// Removed reports whether err is the end of a node because the cluster removed
// it: started again, it ends the same way.
func Removed(err error) bool { return cluster.IsRemoved(err) }

// checkRemoval refuses the removal of a node without which too few voters
// would answer. The last server stays.
func (n *Node) checkRemoval(ctx context.Context, id compute.NodeID) error {
	return removalRefusal(n.machine.View(), n.cluster.CheckRemoval(ctx, id))
}

// removalRefusal says in the names of nodes what is in the way; nil for
// nothing.
func removalRefusal(view *fsm.View, r *membership.Removal) error {
	switch {
	case r == nil:
		return nil
	case r.Voters == 0:
		return compute.Errorf(compute.CodeConflict,
			"It is the last server, which holds the state: have another one join first.").Named("last_server")
	case len(r.Silent) == 0:
		return compute.Errorf(compute.CodeConflict,
			"None of the other servers can lead yet: wait until one keeps up.").Named("quorum_lost")
	}
	names := make([]string, len(r.Silent))
	for i, id := range r.Silent {
		names[i] = nameOf(view, id)
	}
	return compute.Errorf(compute.CodeConflict,
		"Without it %d of %d voters would answer, too few to go on: bring %s back or remove it first.",
		r.Answering, r.Voters, strings.Join(names, " and ")).Named("quorum_lost")
}

// nameOf returns the name of a node.
func nameOf(view *fsm.View, id compute.NodeID) string {
	if known, ok := view.Node(id); ok {
		return known.Name
	}
	return id.String()
}

// methodLacking is the call by which a server asks another one what it still
// has to bring before a third one leaves.
const methodLacking = "storage.lacking"

// Times of that call, all of it within one request to the API.
const (
	settleWait = 2 * time.Second // What a server takes to bring what it lacks before it answers,
	settleAsk  = 3 * time.Second // what others wait for its answer,
	settleAll  = 7 * time.Second // and all of them for all answers.
)

// lackingQuery asks a server that stays what it lacks once another one is gone.
type lackingQuery struct {
	Index  uint64           `cbor:"1,keyasint"` // Of the state that it is to know.
	Leaver compute.NodeID   `cbor:"2,keyasint"`
	Silent []compute.NodeID `cbor:"3,keyasint,omitempty"` // Their copies do not count either.
}

// askLacking asks a server a lackingQuery.
type askLacking func(ctx context.Context, id compute.NodeID, q lackingQuery) (lacking, error)

// checkCopies refuses the removal of a server while those that stay and answer
// lack blobs of which it may have the only copies. It returns those that answered:
// when one of them is removed too, what it said is void.
func (n *Node) checkCopies(ctx context.Context, id compute.NodeID) (beside []compute.NodeID, err error) {
	view, err := reader{n.machine, n.cluster}.Read(ctx) // What was acknowledged is not to be lost.
	if err != nil {
		return nil, err
	}
	if leaver, ok := view.Node(id); !ok || leaver.Role != compute.RoleServer {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleAll)
	defer cancel()
	return keptWithout(ctx, view, id, n.askLacking)
}

// keptWithout asks the other servers what they lack without leaver. When some do
// not answer, or are too old to understand, the rest is asked again, for these
// have to do without the copies of those too. It returns who answered.
func keptWithout(
	ctx context.Context, view *fsm.View, leaver compute.NodeID, ask askLacking,
) (beside []compute.NodeID, err error) {
	q := lackingQuery{Index: view.Index(), Leaver: leaver}
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

// askAll asks servers at the same time.
func askAll(
	ctx context.Context, servers []compute.NodeID, q lackingQuery, ask askLacking,
) (lacks []lacking, errs []error) {
	lacks, errs = make([]lacking, len(servers)), make([]error, len(servers))
	var asked sync.WaitGroup
	for i, id := range servers {
		asked.Go(func() { lacks[i], errs[i] = ask(ctx, id, q) })
	}
	asked.Wait()
	return lacks, errs
}

// copiesRefusal names the servers that lack something, and those that did not
// say; nil when nothing is lacking.
func copiesRefusal(view *fsm.View, servers []compute.NodeID, lacks []lacking, silent []compute.NodeID) error {
	var lines []string
	for i, l := range lacks {
		if !l.nothing() {
			lines = append(lines, nameOf(view, servers[i])+" "+l.String())
		}
	}
	switch {
	case len(servers) == 0:
		lines = append(lines, "no other server says what it lacks")
	case len(lines) == 0:
		return nil
	}
	for _, id := range silent {
		lines = append(lines, "not counted is what "+nameOf(view, id)+" has, which does not say")
	}
	return compute.Errorf(compute.CodeConflict,
		"It may have the only copies of what others still bring: "+
			"wait for them, or force the removal and lose what it has alone. %s.",
		strings.Join(lines, "; ")).Named("copies_missing")
}

// String says what a server lacks as the end of a sentence about it.
func (l lacking) String() string {
	what := fmt.Sprintf("%d archives of old executions and %d bundles of code", l.Archives, l.Bundles)
	if l.Bundles > 0 && l.First != (compute.Hash{}) {
		what += " (such as blob " + storage.Name(l.First) + ")"
	}
	switch {
	case l.Looked:
		return "lacks " + what
	case l.Archives+l.Bundles == 0:
		return "still looks whether it lacks something"
	}
	return "still looks, and lacked " + what
}

// serveLacking answers another server's methodLacking, of a state that is as new
// as the other one's.
func (n *Node) serveLacking(ctx context.Context, _ rpc.Peer, request []byte) ([]byte, error) {
	var q lackingQuery
	if err := cbor.Unmarshal(request, &q); err != nil {
		// An older server does not say who leaves. It takes an error for an answer
		// from one that lacks nothing, but this for one that does not know yet.
		return cbor.Marshal(lacking{})
	}
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	if _, err := n.machine.Wait(ctx, q.Index); err != nil {
		return cbor.Marshal(lacking{}) // It does not know what it is to have.
	}
	return cbor.Marshal(n.keeper.wait(ctx, q.Leaver, q.Silent))
}

// askLacking asks a server what it lacks. One that is older refuses the question.
func (n *Node) askLacking(ctx context.Context, id compute.NodeID, q lackingQuery) (lacks lacking, err error) {
	request, err := cbor.Marshal(q)
	if err != nil {
		return lacking{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleAsk)
	defer cancel()
	data, err := n.cluster.Call(ctx, id, methodLacking, request)
	if err == nil {
		err = cbor.Unmarshal(data, &lacks)
	}
	if err != nil {
		n.logger.Debug("a server does not say what it lacks", "node", id, "err", err)
	}
	return lacks, err
}
