package repair

import (
	"errors"

	"berth/cluster/raftconf"
	"berth/cluster/replica"
	"berth/compute"
	"berth/fsm"
)

// Recovery describes the effects of a recovery without a quorum on a server.
type Recovery struct {
	Node    compute.NodeID    `json:"node"`
	Cluster compute.UUID      `json:"cluster_id"`
	Epoch   uint64            `json:"epoch"`      // The epoch of the recovered cluster.
	Last    uint64            `json:"last_entry"` // The newest entry of this server.
	Term    uint64            `json:"term"`
	Servers []raftconf.Server `json:"servers"` // Servers of the previous configuration, or once done of the new one.
	Voters  []compute.NodeID  `json:"voters"`  // The remaining voters.
	Done    bool              `json:"done"`
}

// Recover makes the stopped server in dir continue with only the voters,
// although they are no quorum of its configuration. It must run on each of the
// voters, always with the same list: servers that continued each on its own
// would become separate clusters. Without do it changes nothing and reports
// what it would do. Without voters it reports the state of the server.
func Recover(dir string, voters []compute.NodeID, do bool) (_ Recovery, err error) {
	stopped, err := replica.OpenStopped(dir)
	if err != nil {
		return Recovery{}, err
	}
	defer stopped.Close()
	r := Recovery{
		Node: stopped.Node(), Cluster: stopped.ClusterID(), Epoch: stopped.NextEpoch(), Voters: voters,
	}
	var at replica.Position
	state, err := NewMachine(dir)
	if err != nil {
		return r, err
	}
	defer func() { // The log of the replica stays open until the command ends.
		v := recover()
		if p, ok := v.(*fsm.PoisonError); ok {
			err = errors.New(adviceOn(p, dir))
		} else if v != nil {
			panic(v)
		}
	}()
	machine := replica.Machine{FSM: state, StateCluster: func() compute.UUID { return state.View().ClusterID() }}
	if do {
		at, err = stopped.Recover(machine, r.Voters)
	} else {
		at, err = stopped.Inspect(machine, r.Voters)
	}
	r.Last, r.Term, r.Servers, r.Done = at.Last, at.Term, at.Servers, do && err == nil
	return r, err
}

// Rejoined describes a server that joins empty at its next start.
type Rejoined struct {
	Node    compute.NodeID `json:"node"`
	Cluster compute.UUID   `json:"cluster_id"`
	Done    bool           `json:"done"`
}

// Rejoin makes the stopped server in dir join empty at its next start. Without
// do it changes nothing.
func Rejoin(dir string, do bool) (Rejoined, error) {
	stopped, err := replica.OpenStopped(dir)
	if err != nil {
		return Rejoined{}, err
	}
	defer stopped.Close()
	r := Rejoined{Node: stopped.Node(), Cluster: stopped.ClusterID()}
	if do {
		err = stopped.Rejoin()
		r.Done = err == nil
	}
	return r, err
}
