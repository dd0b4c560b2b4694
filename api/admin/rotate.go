package admin

import (
	"net/http"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// rotateBytes is about how much of sealed secrets one command carries.
const rotateBytes = 64 << 10

// rotations serves the rotation of keys and of the root token, to operators.
type rotations struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *rotations) Routes() []edge.Route {
	return []edge.Route{{
		Method: http.MethodPost, Path: edge.Root + "/admin/secrets/rotate-master", Need: edge.NeedOperator,
		Summary: "Have a new master key seal on all servers, seal again what the old one sealed, and drop that. " +
			"Nothing stops meanwhile. All servers have to answer.",
		Reply: edge.Type[wire.RotatedMaster](), Handle: g.rotateMaster,
	}, {
		Method: http.MethodPost, Path: edge.Root + "/admin/secrets/rotate", Need: edge.NeedOperator,
		Summary: "Give an organization a new data key, seal its secrets with it, and drop the keys before. " +
			"Nothing stops meanwhile.",
		Body: edge.Type[wire.RotateSecrets](), Reply: edge.Type[wire.RotatedSecrets](), Handle: g.rotate,
	}, {
		Method: http.MethodPost, Path: edge.Root + "/admin/root-token/rotate", Need: edge.NeedOperator, Once: true,
		Summary: "Replace the cluster's root token. Every node refuses the one before from the next request on.",
		Reply:   edge.Type[wire.RotatedRootToken](), Handle: g.rotateRootToken,
	}}
}

// rotate rotates the data key of an organization. It can be repeated after a failure at
// any step.
func (g *rotations) rotate(r *edge.Request) (any, error) {
	if err := r.View.AllowsAccounts(); err != nil {
		return nil, err
	}
	org, err := handler.FindOrg(r.View, r.Body.(*wire.RotateSecrets).Org)
	if err != nil {
		return nil, err
	}
	out := wire.RotatedSecrets{Org: org.Slug}
	key := r.View.DataKey(org.ID)
	if key == nil {
		return out, nil
	}
	next, err := g.Config.Vault.RotateKey(key)
	if err != nil {
		return nil, err
	}
	// A repeat of the request continues with the key that the first one made.
	rotate := command.RotateKey{Op: g.Op(r), Actor: r.Caller.Actor, Org: org.ID, Key: next}
	if _, err := g.ProposeAndSee(r, rotate); err != nil {
		return nil, err
	}
	if r.View.DataKey(org.ID).Number == key.Number { // A repeat, whose view may be older.
		if err := g.ReadView(r); err != nil {
			return nil, err
		}
	}
	key = r.View.DataKey(org.ID)
	if out.Resealed, err = g.reseal(r, org.ID, key); err != nil {
		return nil, err
	}
	out.Key, out.Left = key.Number, r.View.SealedBefore(org.ID, key.Number)
	if out.Left > 0 {
		return out, nil
	}
	retired, err := g.Config.Vault.RetireKeys(key)
	if err != nil {
		return nil, err
	}
	_, err = g.also(r, command.RotateKey{Op: g.freshOp(), Actor: r.Caller.Actor, Org: org.ID, Key: retired, Retire: true})
	return out, err
}

// also proposes a further command of the request, which has an op of its own.
func (g *rotations) also(r *edge.Request, cmd command.Command) (command.Result, error) {
	repeat := r.Repeat
	r.Repeat = false
	defer func() { r.Repeat = repeat }()
	return g.ProposeAndSee(r, cmd)
}

// reseal replaces the values that earlier keys sealed by ones that key seals, a part at
// a time. It returns how many.
func (g *rotations) reseal(r *edge.Request, org compute.OrgID, key *compute.DataKey) (int, error) {
	b := resealed{rotations: g, r: r, key: key, cmd: command.RotateKey{Actor: r.Caller.Actor, Org: org}}
	var err error
	if b.cmd.Signing, err = g.resealSigning(r.View, org, key); err == nil {
		err = b.addVariables(r.View)
	}
	if err == nil && r.View.AllowsResealedTexts() == nil { // Else they are left for a later rotation.
		err = b.addTexts(r.View)
	}
	if err == nil {
		err = b.flush()
	}
	return b.done, err
}

// resealed has values of an organization that were sealed again and are not yet in the
// state.
type resealed struct {
	*rotations

	r    *edge.Request
	key  *compute.DataKey
	cmd  command.RotateKey
	size int // Bytes in cmd.
	done int // Values that are in the state.
}

// flush has the state keep the values.
func (b *resealed) flush() error {
	if len(b.cmd.Variables)+len(b.cmd.Signing)+len(b.cmd.Texts) == 0 {
		return nil
	}
	b.cmd.Op = b.freshOp()
	result, err := b.also(b.r, b.cmd)
	b.done += result.Count
	b.size, b.cmd.Variables, b.cmd.Signing, b.cmd.Texts = 0, nil, nil, nil
	return err
}

// added notes that bytes were added, and flushes once there are many.
func (b *resealed) added(bytes int) error {
	if b.size += bytes; b.size < rotateBytes {
		return nil
	}
	return b.flush()
}

// addVariables seals the secrets of people again.
func (b *resealed) addVariables(view *fsm.View) error {
	for _, known := range view.SecretsOf(b.cmd.Org) {
		if known.Key >= b.key.Number {
			continue
		}
		v := *known
		if err := b.Config.Vault.Reseal(b.key, &v); err != nil {
			return err
		}
		b.cmd.Variables = append(b.cmd.Variables, v)
		if err := b.added(len(v.Sealed) + len(v.Name)); err != nil {
			return err
		}
	}
	return nil
}

// addTexts seals the secrets of executions again.
func (b *resealed) addTexts(view *fsm.View) error {
	for _, text := range view.TextsBefore(b.cmd.Org, b.key.Number) {
		sealed, err := b.Config.Vault.ResealText(b.key, text.Sealed, text.Context)
		if err != nil { // It stays as it is, and the keys before stay for it.
			b.Log.Error("secret of an execution not sealed again: set it again",
				"org", b.cmd.Org, "detail", text.Context, "err", err)
			continue
		}
		b.cmd.Texts = append(b.cmd.Texts, command.ResealedText{Before: text.Sealed, Sealed: sealed, Key: b.key.Number})
		if err := b.added(len(text.Sealed) + len(sealed)); err != nil {
			return err
		}
	}
	return nil
}

// resealSigning returns the secrets that sign callbacks and that earlier keys sealed,
// sealed with key.
func (g *rotations) resealSigning(
	view *fsm.View, org compute.OrgID, key *compute.DataKey,
) (sealed []compute.CallbackSecret, err error) {
	o, ok := view.Org(org)
	if !ok {
		return nil, nil
	}
	for _, secret := range o.Signing {
		if secret.Key >= key.Number {
			continue
		}
		if err := g.Config.Vault.ResealCallback(key, org, &secret); err != nil {
			return nil, err
		}
		sealed = append(sealed, secret)
	}
	return sealed, nil
}
