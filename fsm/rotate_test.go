package fsm_test

import (
	"fmt"
	"testing"

	"berth/compute"
	"berth/fsm/command"
)

// TestRotationSealsTokens rotates the data key of an organization that has a deployment with
// a token, which is being updated. Earlier keys are not retired before each record of the
// token, also those of replicas, is sealed with the new key.
func TestRotationSealsTokens(t *testing.T) {
	w := newestWorld(t)
	w.offerEcho()
	c := w.deploymentCommand()
	c.Execution.Inference.Token, c.Execution.Inference.Key = []byte("first"), 1
	c.Key = &compute.DataKey{Sealed: []byte("key")}
	id := w.must(c).Execution
	w.run(id)
	next := compute.Inference{Engine: "echo", Model: "a/c", Token: []byte("second"), Key: 1}
	w.must(command.UpdateDeployment{Op: w.op(w.org, "update"), Actor: w.ada, Deployment: id, Model: &next})

	w.must(command.RotateKey{Actor: w.root, Org: w.org, Key: &compute.DataKey{Number: 2, Sealed: []byte("keys")}})
	retire := command.RotateKey{Actor: w.root, Org: w.org, Key: &compute.DataKey{Number: 2, Sealed: []byte("keys")}, Retire: true}
	w.refused(retire, compute.CodeConflict, "data_key_in_use")
	other := next
	other.Token = []byte("third")
	w.refused(command.UpdateDeployment{Actor: w.ada, Deployment: id, Model: &other}, compute.CodeConflict, "data_key_changed")
	next.Args = []string{"--more"} // Its token stays, and is sealed again with the others.
	w.must(command.UpdateDeployment{Op: w.op(w.org, "again"), Actor: w.ada, Deployment: id, Model: &next})

	texts := w.view().TextsBefore(w.org, 2)
	if len(texts) != 2 || w.view().SealedBefore(w.org, 2) != 2 {
		t.Errorf("%d texts are sealed with the first key", len(texts))
	}
	reseal := command.RotateKey{Actor: w.root, Org: w.org}
	for i, text := range texts {
		if text.Context != compute.TokenContext(w.org, id) {
			t.Errorf("a text is sealed for %q", text.Context)
		}
		reseal.Texts = append(reseal.Texts, command.ResealedText{Before: text.Sealed, Sealed: fmt.Append(nil, "again ", i), Key: 2})
	}
	w.must(command.RotateKey{Actor: w.root, Org: w.org, Texts: reseal.Texts[:1]})
	w.refused(retire, compute.CodeConflict, "data_key_in_use")
	if r := w.must(reseal); r.Count != 1 && r.Count != 2 { // A replica has a copy of the first token.
		t.Errorf("%d were replaced", r.Count)
	}
	w.must(retire)
	parent, replica := w.get(id), w.get(w.replica(id, 1))
	for _, m := range []*compute.Inference{parent.Inference, parent.Deployment.Next, replica.Inference} {
		if m.Key != 2 || string(m.Token[:5]) != "again" {
			t.Errorf("a token is %q, sealed with key %d", m.Token, m.Key)
		}
	}
	if string(parent.Inference.Token) != string(replica.Inference.Token) || string(parent.Inference.Token) == string(parent.Deployment.Next.Token) {
		t.Errorf("the tokens are %q, %q and %q", parent.Inference.Token, replica.Inference.Token, parent.Deployment.Next.Token)
	}
}

// TestTokensNeedTheDataKey refuses deployments whose token another key than that of their
// organization has sealed, as that of a second first key.
func TestTokensNeedTheDataKey(t *testing.T) {
	w := newestWorld(t)
	w.offerEcho()
	deploy := func(key *compute.DataKey, number uint64) command.Submit {
		c := w.deploymentCommand()
		c.Execution.Inference.Token, c.Execution.Inference.Key, c.Key = []byte("token"), number, key
		return c
	}
	first := &compute.DataKey{Sealed: []byte("key")}
	for i, test := range []struct {
		key    *compute.DataKey
		number uint64
		ok     bool
	}{{nil, 1, false}, {first, 1, true}, {first, 1, false}, {nil, 2, false}, {nil, 1, true}} {
		r := w.do(deploy(test.key, test.number)) // An answer to a request is remembered, also a refusal.
		if (r.Refusal == nil) != test.ok || !test.ok && r.Refusal.Detail != "data_key_changed" {
			t.Errorf("deployment %d: %+v", i, r.Refusal)
		}
	}
}
