package repair

import (
	"errors"

	"berth/cluster/raftconf"
	"berth/cluster/replica"
	"berth/compute"
	"berth/fsm"
)

// Recovery is what a recovery without a quorum does to a server.
type Recovery struct {
	Node    compute.NodeID    `json:"node"`
	Cluster compute.UUID      `json:"cluster_id"`
	Epoch   uint64            `json:"epoch"`      // In which the cluster goes on.
	Last    uint64            `json:"last_entry"` // The newest that this server has.
	Term    uint64            `json:"term"`
	Servers []raftconf.Server `json:"servers"` // Of the configuration: before, and once done after.
	Voters  []compute.NodeID  `json:"voters"`  // With which it goes on.
	Done    bool              `json:"done"`
}

// Recover has the stopped server in dir go on with the voters alone, although
// they are no quorum of its configuration. It is done on each of the voters, with
// the same ones, all of which are named: servers that each went on alone would be
// as many clusters. Without do it changes nothing and says what it would do, and
// where the server stands when no voters are named yet.
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
	defer func() { // The log of the replica stays open, until the command ends.
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

// Rejoined is a server that comes in empty at its next start.
type Rejoined struct {
	Node    compute.NodeID `json:"node"`
	Cluster compute.UUID   `json:"cluster_id"`
	Done    bool           `json:"done"`
}

// Rejoin has the stopped server in dir come in empty at its next start. Without do
// it changes nothing.
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
