package fsm_test

import (
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// actions returns the actions of a trail, the newest first.
func (w *world) actions(org compute.OrgID) (out []string) {
	for line := range w.view().Audit(org, 0) {
		out = append(out, line.Action)
	}
	return out
}

// TestAuditTrails checks that changes are recorded with the actor, the action, the
// address and the entry, in the trail of their organization. Refusals, repeats and work
// are not recorded.
func TestAuditTrails(t *testing.T) {
	w := newestWorld(t)
	key := compute.KeyID{UUID: w.uuid()}
	create := command.CreateKey{Op: w.op(w.org, "key"), Actor: w.ada, Key: compute.Key{ID: key, Lookup: "k", Name: "laptop"}}
	create.Actor.From, create.Actor.Request = "192.0.2.7", "req-1"
	w.must(create)
	w.must(create) // A repeat.
	w.do(command.DeleteKey{Actor: w.other, Key: key})
	w.submit("t4")
	w.must(command.Grant{Actor: w.root, Org: w.org, Amount: 5})
	w.must(command.SetBillingMode{Actor: w.root, Meter: true})
	if got := w.actions(w.org); !slices.Equal(got, []string{"credits.grant", "key.create"}) {
		t.Errorf("the organization's trail is %v", got)
	}
	if got := w.actions(compute.OrgID{}); got[0] != "billing.mode" || slices.Contains(got, "key.create") {
		t.Errorf("the cluster's trail is %v", got)
	}
	for line := range w.view().Audit(w.org, 2) {
		if line.User != w.ada.User || line.Target != key.String() || line.Detail != "laptop" || line.From != "192.0.2.7" ||
			line.Request != "req-1" || line.Index != w.index-5 || line.Seq != 1 {
			t.Errorf("the line is %+v at index %d", line, w.index)
		}
	}
	if err := w.view().VerifyAudit(w.org); err != nil {
		t.Error(err)
	}
}

// TestAuditIsBounded checks that the oldest lines go and that the chain of the others
// can still be verified.
func TestAuditIsBounded(t *testing.T) {
	w := newestWorld(t)
	const most = 10_000
	w.grants(most + 500)
	trail := w.view().Trail(w.org)
	if trail.Lines != most+500 || trail.Trimmed != 500 || len(w.actions(w.org)) != most {
		t.Errorf("the trail is %+v", trail)
	}
	if err := w.view().Check(); err != nil {
		t.Error(err)
	}
}

// TestReuseOfARefreshTokenIsAudited checks that the theft of a login shows.
func TestReuseOfARefreshTokenIsAudited(t *testing.T) {
	w := newestWorld(t)
	w.must(command.StoreRefresh{Token: compute.RefreshToken{
		Hash: hash("1"), Family: w.uuid(), User: w.ada.User, ExpiresAt: w.now.Add(1e12),
	}})
	w.must(command.RotateRefresh{Old: hash("1"), Next: compute.RefreshToken{Hash: hash("2")}})
	w.do(command.RotateRefresh{Old: hash("1"), Next: compute.RefreshToken{Hash: hash("3")}})
	if got := w.actions(w.org); !slices.Equal(got, []string{"login.token_reused", "login"}) {
		t.Errorf("the trail is %v", got)
	}
}

// TestTrailsListMembers checks that an organization's trail has a line for each way in
// which people come, change and go.
func TestTrailsListMembers(t *testing.T) {
	w := newestWorld(t)
	w.must(command.CreateUser{
		Actor: w.root, User: compute.User{ID: compute.UserID{UUID: w.uuid()}, Email: "bea@example.com"},
		Org: compute.Org{Slug: "ada"}, Join: true,
	})
	joins := command.Actor{User: compute.UserID{UUID: w.uuid()}, Org: w.org}
	w.must(command.SignUp{
		User: compute.User{ID: joins.User, Email: "dan@example.com", Subject: "https://id dan"},
		Org:  compute.Org{ID: compute.OrgID{UUID: w.uuid()}, Slug: "ada"}, Join: true,
	})
	disabled := true
	w.must(command.SetUser{Actor: w.root, User: joins.User, Disabled: &disabled})
	disabled = false
	w.must(command.SetUser{Actor: w.root, User: joins.User, Disabled: &disabled})
	w.must(command.DeleteUser{Actor: joins})
	want := []string{"user.delete", "user.change", "user.change", "user.signup", "user.create"}
	if got := w.actions(w.org); !slices.Equal(got, want) {
		t.Errorf("the organization's trail is %v", got)
	}
	if got := w.actions(compute.OrgID{}); !slices.Equal(got[:len(want)], want) {
		t.Errorf("the cluster's trail is %v", got)
	}
	for line := range w.view().Audit(w.org, 0) {
		if line.Action == "user.delete" && (line.User != joins.User || line.Target != joins.User.String()) {
			t.Errorf("the line is %+v", line)
		}
	}
	if got := w.actions(w.other.Org); slices.Contains(got, "user.delete") {
		t.Errorf("another organization's trail is %v", got)
	}
}

// TestAuditSaysWhatChanged checks that lines name the values before and after a change, and
// that a command which changes nothing has no line.
func TestAuditSaysWhatChanged(t *testing.T) {
	w := newestWorld(t)
	dan, chat := w.addUser("dan"), w.deployment()
	w.pass(time.Minute)
	w.must(command.SetNodeState{Term: w.term, Node: w.node("n2").ID, State: compute.NodeDown})
	quota := compute.Quota{Org: w.org, Concurrent: 4, MilliGPU: 1500}
	budget := compute.Budget{Org: w.org, MaxCredits: 5 * compute.Credit, Monthly: true, Enforce: true}
	noted := budget
	noted.URL = "https://example.com/secret"
	role := func(role compute.OrgRole) command.SetMember {
		return command.SetMember{Actor: w.root, Org: w.org, User: dan.User, Role: role}
	}
	for _, test := range []struct {
		cmd            command.Command
		org            compute.OrgID
		target, detail string
	}{
		{
			command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{"t4": 200}},
			compute.OrgID{},
			"t4", "0.36 (built-in) to 0.72 (operator)",
		},
		{
			command.SetPrices{Actor: w.root, Costs: map[string]compute.Price{"t4": 10}},
			compute.OrgID{},
			"t4", "0.72 (operator) to 0.72 (operator) at a cost of 0.036",
		},
		{command.SetQuota{Actor: w.root, Quota: quota}, w.org, "organization", "no limits to 4 executions, 1500/1000 GPUs"},
		{
			command.SetQuota{Actor: w.root, Quota: compute.Quota{Org: w.org}},
			w.org,
			"organization", "4 executions, 1500/1000 GPUs to no limits",
		},
		{command.SetBudget{Actor: w.ada, Budget: budget}, w.org, "organization", "none to 5 credits a month, enforced"},
		{command.SetBudget{Actor: w.ada, Budget: noted}, w.org, "organization", "5 credits a month, enforced"},
		{command.RemoveBudget{Actor: w.ada, Org: w.org}, w.org, "organization", "5 credits a month, enforced to none"},
		{role(compute.OrgMember), w.org, dan.User.String(), "member"},
		{role(compute.OrgAdmin), w.org, dan.User.String(), "member to admin"},
		{
			command.SetModel{Actor: w.root, ID: "chat", Deployment: chat},
			compute.OrgID{},
			"chat", chat.String() + ", 0 and 0 credits",
		},
		{
			command.SetModel{Actor: w.root, ID: "chat", Deployment: chat, Prices: compute.TokenPrices{Prompt: compute.Credit}},
			compute.OrgID{},
			"chat", chat.String() + ", 0 and 0 credits to " + chat.String() + ", 1 and 0 credits",
		},
		{
			command.SetBucketLimits{Actor: w.root, Org: w.org, MaxBytes: 100},
			w.org,
			w.org.String(), "0 bytes, 0 objects, 0 bytes of a user to 100 bytes, 0 objects, 0 bytes of a user",
		},
		{command.SetBrake{Actor: w.root, Share: new(70)}, compute.OrgID{}, "", "release false"},
		{command.SetBrake{Actor: w.root, Release: true}, compute.OrgID{}, "", "release true"},
	} {
		lines := w.view().Trail(test.org).Lines
		w.must(test.cmd)
		w.do(test.cmd) // It changes nothing.
		if got := w.view().Trail(test.org).Lines; got != lines+1 {
			t.Errorf("%T twice: %d lines", test.cmd, got-lines)
		}
		for line := range w.view().Audit(test.org, 0) {
			if line.Target != test.target || line.Detail != test.detail {
				t.Errorf("%T: the line is %q, %q", test.cmd, line.Target, line.Detail)
			}
			break
		}
	}
}

// TestNothingIsNotAudited checks that requests which change nothing have no line.
func TestNothingIsNotAudited(t *testing.T) {
	w := newestWorld(t)
	org, _ := w.view().Org(w.org)
	before, cluster := w.view().Trail(w.org), w.view().Trail(compute.OrgID{})
	for _, cmd := range []command.Command{
		command.RemoveVariables{Actor: w.ada},
		command.SetOrg{Actor: w.ada, Org: w.org, Slug: org.Slug},
		command.TrustOrg{Actor: w.root, Org: w.org, Trusted: org.Trusted},
		command.SetUser{Actor: w.root, User: w.ada.User, Disabled: new(false)},
		command.SetBillingMode{Actor: w.root, Meter: w.view().Settings().Meter},
		command.DrainNode{Actor: w.root, Node: w.node("n1").ID},
		command.SetBrake{Actor: w.root, Share: new(0), Release: true},
		command.SetBucketLimits{Actor: w.root, Org: w.org},
	} {
		w.must(cmd)
	}
	if w.view().Trail(w.org) != before || w.view().Trail(compute.OrgID{}) != cluster {
		t.Errorf("the trails are %v and %v", w.actions(w.org), w.actions(compute.OrgID{}))
	}
}

// TestMembersPushOutNoAdministration checks that lines which any member can cause push out
// others like them only, and that the trail with its gaps can be read and verified, also after
// a restore.
func TestMembersPushOutNoAdministration(t *testing.T) {
	w := newestWorld(t)
	const most, rounds, many = 5_000, 12, 500
	dan := w.addUser("dan")
	w.must(command.SetMember{Actor: w.root, Org: w.org, User: dan.User, Role: compute.OrgMember})
	dan.Org = w.org
	batch := make([]command.Command, 0, many)
	for range many {
		batch = append(batch, command.PutVariables{Actor: dan, Variables: []compute.Variable{{Name: "A", Value: "a"}}})
	}
	for range rounds {
		w.must(command.Grant{Actor: w.root, Org: w.org, Amount: 1})
		w.do(batch...)
	}
	trail, count := w.view().Trail(w.org), make(map[string]int)
	var seqs []uint64
	for line := range w.view().Audit(w.org, 0) {
		count[line.Action]++
		seqs = append(seqs, line.Seq)
	}
	if count["member.set"] != 1 || count["credits.grant"] != rounds || count["variables.set"] != most {
		t.Errorf("the trail has %v", count)
	}
	if want := uint64(1 + rounds + rounds*many); trail.Lines != want || trail.Trimmed != rounds*many-most {
		t.Errorf("the trail is %+v, not of %d lines", trail, want)
	}
	for i, seq := range seqs { // A page begins behind any line, also one that is gone.
		if i+1 == len(seqs) {
			break
		}
		for line := range w.view().Audit(w.org, seqs[i+1]+1) {
			if line.Seq != seqs[i+1] {
				t.Fatalf("below %d is line %d, not %d", seq, line.Seq, seqs[i+1])
			}
			break
		}
	}
	if err := w.view().Check(); err != nil {
		t.Error(err)
	}
	again, err := restore(w.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.View().VerifyAudit(w.org); err != nil || again.View().Trail(w.org) != trail {
		t.Errorf("restored, the trail is %+v: %v", again.View().Trail(w.org), err)
	}
}

// grants applies a number of grants, each of which has a line.
func (w *world) grants(count int) {
	w.Helper()
	const atOnce = 500
	for ; count > 0; count -= atOnce {
		w.do(slices.Repeat([]command.Command{command.Grant{Actor: w.root, Org: w.org, Amount: 1}}, min(count, atOnce))...)
	}
}

// TestOldTrailsGoOn checks that a trail from before lines had shares is verified, and that its
// lines count as those of administration.
func TestOldTrailsGoOn(t *testing.T) {
	w := newOldWorldAt(t, format.Output)
	w.grants(10_300)
	for n := range w.view().Nodes() {
		known := *n
		known.Format = format.Newest
		w.must(command.RegisterNode{Node: known})
	}
	w.must(command.SetFormat{Term: w.term, Format: format.Newest})
	check := func(lines, trimmed uint64) {
		t.Helper()
		if trail := w.view().Trail(w.org); trail.Lines != lines || trail.Trimmed != trimmed {
			t.Errorf("the trail is %+v", trail)
		}
		if err := w.view().Check(); err != nil {
			t.Error(err)
		}
	}
	check(10_300, 300)
	w.session(w.ada.User, "1") // A routine line.
	check(10_301, 300)
	w.grants(2)
	check(10_303, 302)
	w.grants(10_000)
	check(20_303, 10_302)
	if got := w.actions(w.org); got[len(got)-1] != "login" {
		t.Errorf("the oldest line is %s", got[len(got)-1])
	}
}
