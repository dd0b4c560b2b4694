package api_test

import (
	"strings"
	"sync"
	"testing"

	"berth/api/wire"
	"berth/fsm/command"
)

// TestRootTokenIsRotated replaces the root token: on a server and a worker the one before opens
// nothing from the next request on, and a request that it has opened before changes nothing after.
func TestRootTokenIsRotated(t *testing.T) {
	w := newWorld(t)
	_, worker := w.newWorker()
	w.want(409, "", "POST", "/admin/root-token/rotate", rootToken, nil) // Before the format has it.
	w.upgrade()
	w.want(403, "not_operator", "POST", "/admin/root-token/rotate", w.bobKey, nil)
	var made wire.RotatedRootToken
	w.mustDo("POST", "/admin/root-token/rotate", rootToken, nil, &made, "Idempotency-Key", "once")
	if !strings.HasPrefix(made.RootToken, "brt_") || len(made.RootToken) != 47 {
		t.Fatalf("the token is %q", made.RootToken)
	}
	for name, node := range map[string]*world{"server": w, "worker": worker} {
		for token, want := range map[string]int{rootToken: 401, made.RootToken: 200, w.adaKey: 200} {
			if a := node.send("GET", "/admin/nodes", token, nil); a.status != want {
				t.Errorf("%s: %d %s, want %d", name, a.status, a.body, want)
			}
		}
	}
	w.want(401, "", "POST", "/admin/root-token/rotate", rootToken, nil)
	var again wire.RotatedRootToken
	w.mustDo("POST", "/admin/root-token/rotate", w.adaKey, nil, &again, "Idempotency-Key", "again")
	w.want(409, "secret_not_kept", "POST", "/admin/root-token/rotate", w.adaKey, nil, "Idempotency-Key", "again")

	// The old token is replaced between the check of a request and its command.
	rotate := command.RotateRootToken{
		Actor: command.Actor{Root: true, TokenVersion: 2}, Token: [32]byte{1}, Before: w.machine.View().RootToken(),
	}
	var first sync.Once
	w.saw = func(cmd command.Command) {
		if _, ok := cmd.(command.SetBrake); ok {
			first.Do(func() { w.applied(rotate) })
		}
	}
	w.want(401, "root_token_rotated", "POST", "/admin/brake", again.RootToken, `{"share_percent":30}`)
	if w.machine.View().RootVersion() != 3 {
		t.Errorf("the token has version %d", w.machine.View().RootVersion())
	}
}

// applied applies a command in front of the one that is proposed.
func (w *world) applied(cmd command.Command) {
	frame, err := command.Encode(cmd)
	w.ok(err)
	w.index++
	w.machine.ApplyFrames(w.index, frame)
}
