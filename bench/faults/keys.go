package faults

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/compute"
)

// keyring is the workload of API keys: clients create, use, disable, enable and
// delete them. No node accepts a deleted key.
type keyring struct {
	session *session
	org     organization
	token   string // Access token of the organization's owner.

	mu   sync.Mutex
	keys []*trackedKey
}

// trackedKey is one key. Only the client that set busy changes it.
type trackedKey struct {
	id     compute.KeyID
	secret string
	object check.Object
	busy   bool
}

const keysAtOnce = 6

func (w *keyring) name() string { return "keys" }

func (w *keyring) clients() int { return 4 }

func (w *keyring) prepare(ctx context.Context) (err error) {
	if w.org, err = w.session.newOrganization(ctx, "keyring"); err != nil {
		return err
	}
	return w.signIn(ctx)
}

// signIn gets a token for managing keys.
func (w *keyring) signIn(ctx context.Context) error {
	login, err := w.session.admin.WithToken("").Login(ctx, w.org.email, w.org.password)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.token = login.AccessToken
	return nil
}

func (w *keyring) access() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.token
}

func (w *keyring) run(ctx context.Context, c *caller) {
	for c.pause(ctx, 80*time.Millisecond) {
		n := c.rng.IntN(20)
		one := w.pick(c, n >= 16)
		switch {
		case one == nil:
			w.create(ctx, c)
		case n < 16:
			w.use(ctx, c, one)
		case n < 19:
			w.toggle(ctx, c, one)
		default:
			w.remove(ctx, c, one)
		}
	}
}

// pick returns a key, or nil if there are too few or another client changes it.
func (w *keyring) pick(c *caller, change bool) *trackedKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.keys) < keysAtOnce {
		return nil
	}
	one := w.keys[c.rng.IntN(len(w.keys))]
	if change {
		if one.busy {
			return nil
		}
		one.busy = true
	}
	return one
}

func (w *keyring) release(one *trackedKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.busy = false
}

// create makes a key. A key whose answer is lost is not used.
func (w *keyring) create(ctx context.Context, c *caller) {
	c.next()
	node := c.any(w.access())
	var minted wire.MintedKey
	out, err := c.try(ctx, w.name(), func(ctx context.Context) (err error) {
		minted, err = node.CreateKey(ctx, w.org.slug, "key")
		return err
	})
	switch out {
	case done:
	case refused:
		w.refused(ctx, "create", err)
		return
	case unknown, unsent, full:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = append(w.keys, &trackedKey{
		id: minted.ID, secret: minted.PlaintextKey, object: check.Object{Kind: check.KindKey, Name: minted.ID.String()},
	})
}

// refused signs in again after the token has expired.
func (w *keyring) refused(ctx context.Context, what string, err error) {
	if answer, ok := errors.AsType[*client.Error](err); ok && answer.Status == http.StatusUnauthorized {
		if w.signIn(ctx) == nil {
			return
		}
	}
	w.session.unexpected(w.name(), what, err)
}

func (w *keyring) use(ctx context.Context, c *caller, one *trackedKey) {
	node := c.any(one.secret)
	t := w.session.history.Call(one.object, c.id, check.Use{})
	err := c.read(ctx, w.name(), func(ctx context.Context) error {
		_, err := node.UserStatus(ctx)
		return err
	})
	switch answer, _ := errors.AsType[*client.Error](err); {
	case err == nil:
		t.Return(true)
	case answer != nil && answer.Status == http.StatusUnauthorized:
		t.Return(false)
	default:
		t.Drop()
	}
	if w.session.history.Len(one.object) >= triesPerObject {
		w.drop(one)
	}
}

func (w *keyring) drop(one *trackedKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := slices.Index(w.keys, one); at >= 0 {
		w.keys = slices.Delete(w.keys, at, at+1)
	}
}

// toggle enables or disables a key, and repeats the same operation until its
// outcome is known. An unknown outcome would make every later answer valid. A
// repeat gets the answer of the first try.
func (w *keyring) toggle(ctx context.Context, c *caller, one *trackedKey) {
	op := c.next()
	t := w.session.history.Call(one.object, c.id, check.Toggle{Op: op})
	doubt := false
	for ctx.Err() == nil {
		node := c.any(w.access())
		var key wire.Key
		out, err := c.relieve(ctx, w.name(), "toggle", func(ctx context.Context) (err error) {
			key, err = node.ToggleKey(ctx, w.org.slug, one.id)
			return err
		})
		switch {
		case out == done:
			t.Return(key.IsActive)
			w.release(one)
			return
		case out == refused && !doubt:
			t.Drop()
			w.refused(ctx, "toggle", err)
			w.release(one)
			return
		}
		doubt = doubt || out == unknown
		c.pause(ctx, 100*time.Millisecond)
	}
}

// remove deletes a key. Clients go on using it to check that it is refused.
func (w *keyring) remove(ctx context.Context, c *caller, one *trackedKey) {
	c.next()
	t := w.session.history.Call(one.object, c.id, check.Delete{})
	doubt := false
	for ctx.Err() == nil {
		node := c.any(w.access())
		out, err := c.relieve(ctx, w.name(), "delete", func(ctx context.Context) error {
			return node.DeleteKey(ctx, w.org.slug, one.id)
		})
		answer, _ := errors.AsType[*client.Error](err)
		gone := doubt && answer != nil && answer.Status == http.StatusNotFound
		if gone {
			w.session.unexpected(w.name(), "a repeated delete did not get its first answer", err)
		}
		switch {
		case out == done, gone:
			t.Return(true)
			w.useDeleted(ctx, c, one)
			return
		case out == refused && !doubt:
			t.Drop()
			w.refused(ctx, "delete", err)
			w.release(one)
			return
		}
		doubt = doubt || out == unknown
		c.pause(ctx, 100*time.Millisecond)
	}
}

// useDeleted uses a deleted key a few more times, at every node.
func (w *keyring) useDeleted(ctx context.Context, c *caller, one *trackedKey) {
	for range 6 {
		w.use(ctx, c, one)
		if !c.pause(ctx, 50*time.Millisecond) {
			return
		}
	}
	w.drop(one)
}

func (w *keyring) finish(context.Context) []check.Violation { return nil }
