package api

import (
	"net/http"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// rotateBytes is about how much of sealed secrets one command carries.
const rotateBytes = 64 << 10

// rotations serves the rotation of data keys, to operators.
type rotations struct {
	*core
}

// routes returns the routes of the group.
func (g *rotations) routes() []edge.Route {
	return []edge.Route{{
		Method: http.MethodPost, Path: root + "/admin/secrets/rotate-master", Need: edge.NeedOperator,
		Summary: "Have a new master key seal on all servers, seal again what the old one sealed, and drop that. " +
			"Nothing stops meanwhile. All servers have to answer.",
		Reply: of[wire.RotatedMaster](), Handle: g.rotateMaster,
	}, {
		Method: http.MethodPost, Path: root + "/admin/secrets/rotate", Need: edge.NeedOperator,
		Summary: "Give an organization a new data key, seal its secrets with it, and drop the keys before. " +
			"Nothing stops meanwhile.",
		Body: of[wire.RotateSecrets](), Reply: of[wire.RotatedSecrets](), Handle: g.rotate,
	}}
}

// rotate rotates the data key of an organization. It can be repeated after a failure at
// any step.
func (g *rotations) rotate(r *edge.Request) (any, error) {
	if err := r.View.AllowsAccounts(); err != nil {
		return nil, err
	}
	org, err := findOrg(r.View, r.Body.(*wire.RotateSecrets).Org)
	if err != nil {
		return nil, err
	}
	out := wire.RotatedSecrets{Org: org.Slug}
	key := r.View.DataKey(org.ID)
	if key == nil {
		return out, nil
	}
	next, err := g.cfg.Vault.RotateKey(key)
	if err != nil {
		return nil, err
	}
	// A repeat of the request continues with the key that the first one made.
	rotate := fsm.RotateKey{Op: g.Op(r), Actor: r.Caller.Actor, Org: org.ID, Key: next}
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
	retired, err := g.cfg.Vault.RetireKeys(key)
	if err != nil {
		return nil, err
	}
	_, err = g.also(r, fsm.RotateKey{Op: g.freshOp(), Actor: r.Caller.Actor, Org: org.ID, Key: retired, Retire: true})
	return out, err
}

// also proposes a further command of the request, which has an op of its own.
func (g *rotations) also(r *edge.Request, cmd fsm.Command) (fsm.Result, error) {
	repeat := r.Repeat
	r.Repeat = false
	defer func() { r.Repeat = repeat }()
	return g.ProposeAndSee(r, cmd)
}

// reseal replaces the values that earlier keys sealed by ones that key seals, a part at
// a time.
//
//nolint:gocognit // Three kinds of values.
func (g *rotations) reseal(r *edge.Request, org compute.OrgID, key *compute.DataKey) (int, error) {
	done, size := 0, 0
	cmd := fsm.RotateKey{Actor: r.Caller.Actor, Org: org}
	flush := func() error {
		if len(cmd.Variables)+len(cmd.Signing)+len(cmd.Texts) == 0 {
			return nil
		}
		cmd.Op = g.freshOp()
		result, err := g.also(r, cmd)
		done += result.Count
		size, cmd.Variables, cmd.Signing, cmd.Texts = 0, nil, nil, nil
		return err
	}
	view := r.View
	var err error
	if cmd.Signing, err = g.resealSigning(view, org, key); err != nil {
		return done, err
	}
	for _, known := range view.SecretsOf(org) {
		if known.Key >= key.Number {
			continue
		}
		v := *known
		if err := g.cfg.Vault.Reseal(key, &v); err != nil {
			return done, err
		}
		cmd.Variables = append(cmd.Variables, v)
		if size += len(v.Sealed) + len(v.Name); size >= rotateBytes {
			if err := flush(); err != nil {
				return done, err
			}
		}
	}
	texts := view.TextsBefore(org, key.Number)
	if view.AllowsResealedTexts() != nil {
		texts = nil // They are left for a later rotation.
	}
	for _, text := range texts {
		sealed, err := g.cfg.Vault.ResealText(key, text.Sealed, text.Context)
		if err != nil { // It stays as it is, and the keys before stay for it.
			g.log.Error("secret of an execution not sealed again: set it again", "org", org, "detail", text.Context, "err", err)
			continue
		}
		cmd.Texts = append(cmd.Texts, fsm.ResealedText{Before: text.Sealed, Sealed: sealed, Key: key.Number})
		if size += len(text.Sealed) + len(sealed); size >= rotateBytes {
			if err := flush(); err != nil {
				return done, err
			}
		}
	}
	return done, flush()
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
		if err := g.cfg.Vault.ResealCallback(key, org, &secret); err != nil {
			return nil, err
		}
		sealed = append(sealed, secret)
	}
	return sealed, nil
}
