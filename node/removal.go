package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
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
func removalRefusal(view *fsm.View, r *cluster.Removal) error {
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
// has to bring.
const methodLacking = "storage.lacking"

// Times of that call.
const (
	settleWait = 3 * time.Second // What a server takes to bring what it lacks before it answers,
	settleAsk  = 5 * time.Second // and what others wait for its answer.
)

// checkCopies refuses the removal of a server while another one that answers
// still brings blobs that it is to have: there might be no other copy of them.
func (n *Node) checkCopies(ctx context.Context, id compute.NodeID) error {
	view := n.machine.View()
	if leaver, ok := view.Node(id); !ok || leaver.Role != compute.RoleServer {
		return nil
	}
	stay := slices.DeleteFunc(serversOf(view), func(other compute.NodeID) bool { return other == id })
	lacks := make([]lacking, len(stay))
	var asked sync.WaitGroup
	for i, other := range stay {
		asked.Go(func() {
			var err error
			if lacks[i], err = n.askLacking(ctx, other, view.Index()); err != nil {
				n.logger.Debug("a server does not say what it lacks", "node", other, "err", err)
				lacks[i] = lacking{Looked: true} // It is as little use as one that is down.
			}
		})
	}
	asked.Wait()
	return copiesRefusal(view, stay, lacks)
}

// copiesRefusal names the servers that lack something; nil for none.
func copiesRefusal(view *fsm.View, servers []compute.NodeID, lacks []lacking) error {
	var names []string
	for i, l := range lacks {
		if !l.nothing() {
			names = append(names, nameOf(view, servers[i])+" "+l.String())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return compute.Errorf(compute.CodeConflict,
		"It may have the only copies of what others still bring: wait for them, or force the removal. %s.",
		strings.Join(names, "; ")).Named("copies_missing")
}

// String says what a server lacks as the end of a sentence about it.
func (l lacking) String() string {
	switch {
	case l.Looked:
		return fmt.Sprintf("lacks %d archives of old executions and %d bundles of code", l.Archives, l.Bundles)
	case l.Archives+l.Bundles == 0:
		return "still looks whether it lacks something"
	}
	return fmt.Sprintf("still looks, and lacked %d archives of old executions and %d bundles of code",
		l.Archives, l.Bundles)
}

// serveLacking answers another server's methodLacking, of a state that is as new
// as the other one's.
func (n *Node) serveLacking(ctx context.Context, _ rpc.Peer, request []byte) ([]byte, error) {
	var index uint64
	if err := cbor.Unmarshal(request, &index); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "Not an index.")
	}
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	if _, err := n.machine.Wait(ctx, index); err != nil {
		return cbor.Marshal(lacking{}) // It does not know what it is to have.
	}
	return cbor.Marshal(n.keeper.wait(ctx))
}

// askLacking asks a server what it lacks.
func (n *Node) askLacking(ctx context.Context, id compute.NodeID, index uint64) (lacking, error) {
	request, err := cbor.Marshal(index)
	if err != nil {
		return lacking{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleAsk)
	defer cancel()
	data, err := n.cluster.Call(ctx, id, methodLacking, request)
	if err != nil {
		return lacking{}, err
	}
	var lacks lacking
	err = cbor.Unmarshal(data, &lacks)
	return lacks, err
}
