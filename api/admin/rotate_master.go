package admin

import (
	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// resealAtOnce is how many keys one command replaces.
const resealAtOnce = 50

// rotateMaster rotates the master key. It can be repeated after a failure at any step:
// all keys that may have sealed something stay until nothing is left of them. If several
// begin at once, one goes on and the others are refused at their next step.
func (g *rotations) rotateMaster(r *edge.Request) (any, error) {
	if err := r.View.AllowsAccounts(); err != nil {
		return nil, err
	}
	if g.Config.Master == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "This node has no master key: ask a server.")
	}
	if !r.Repeat { // A repeat goes on with the key that seals.
		if err := g.newMasterKey(r); err != nil {
			return nil, err
		}
	}
	sealing := r.View.Sealing()
	if len(sealing) != 1 {
		return nil, OtherRotation()
	}
	out := wire.RotatedMaster{}
	keys := r.View.SealedOtherwise(sealing[0])
	for at := 0; at < len(keys); at += resealAtOnce {
		batch := keys[at:min(at+resealAtOnce, len(keys))]
		for i := range batch {
			var err error
			if batch[i].Sealed, err = g.Config.Master.Reseal(batch[i].Sealed, batch[i].Context()); err != nil {
				return nil, err
			}
		}
		result, err := g.also(r, command.Reseal{Op: g.freshOp(), Actor: r.Caller.Actor, Keys: batch})
		if err != nil {
			return nil, err
		}
		out.Resealed += result.Count
	}
	if err := g.ReadView(r); err != nil {
		return nil, err
	}
	if command.SealingHash(r.View.Sealing()) != command.SealingHash(sealing) {
		return nil, OtherRotation()
	}
	if out.Left = len(r.View.SealedOtherwise(sealing[0])); out.Left > 0 {
		return out, nil
	}
	var err error
	out.Servers, err = g.Config.Master.Retire(r.Ctx, sealing[0])
	return out, err
}

// OtherRotation is the answer to a rotation that another one has overtaken.
func OtherRotation() error {
	return compute.Errorf(compute.CodeConflict, "Another rotation is going on.").Named("rotation_in_progress")
}

// newMasterKey has a new key seal on all servers. Before it does the state accepts what
// either key seals; afterwards nothing that the old one seals arrives any more.
func (g *rotations) newMasterKey(r *edge.Request) error {
	if err := g.ReadView(r); err != nil {
		return err
	}
	before := command.SealingHash(r.View.Sealing())
	if err := r.View.Allows(command.SealWith{Before: before}); err != nil {
		return err // Before servers get a key that does not seal.
	}
	now, next, err := g.Config.Master.Add(r.Ctx)
	if err != nil {
		return err
	}
	both := command.SealWith{Op: g.freshOp(), Actor: r.Caller.Actor, Prefixes: [][]byte{now, next}, Before: before}
	if _, err := g.also(r, both); err != nil {
		return err
	}
	if err := g.Config.Master.Use(r.Ctx, next); err != nil {
		return err
	}
	_, err = g.ProposeAndSee(r, command.SealWith{
		Op: g.Op(r), Actor: r.Caller.Actor, Prefixes: [][]byte{next}, Before: command.SealingHash(both.Prefixes),
	})
	return err
}

// freshOp returns the operation of a further command of a request.
func (g *rotations) freshOp() command.Op { return command.Op{ID: compute.OpID{UUID: g.NewUUID()}} }
