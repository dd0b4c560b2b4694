package fsm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
)

// historian generates random commands, most of them valid, from the content of
// the state.
type historian struct {
	*world

	rng   *rand.Rand
	sent  []command.Command // To repeat commands.
	names int               // Number of nodes and users so far.
}

// newHistorian returns a historian with a cluster whose limits are low enough
// to be reached.
func newHistorian(t testing.TB, seed uint64) *historian {
	h := &historian{world: newEmptyWorld(t), rng: rand.New(rand.NewPCG(seed, 1))}
	s := settings()
	s.SignupGrant = 2 * compute.Credit
	s.Concurrent, s.Queued, s.Keys = 6, 12, 4
	s.KeepFinished, s.MaxFinished = 6*time.Hour, 60
	s.Meter = seed%5 == 4
	s.PreemptMinRun, s.PreemptNotice = time.Duration(seed%2)*5*time.Minute, 30*time.Second
	h.bootstrap(s)
	h.addNode("n1", "h100", "h100", "l40s")
	h.addNode("n2", "t4", "t4", "t4", "a100", "a100.mig_3g_20gb")
	h.ada, h.other = h.addUser("ada"), h.addUser("bob")
	h.org = h.ada.Org
	return h
}

// pick returns one of the items.
func pick[T any](h *historian, items ...T) T { return items[h.rng.IntN(len(items))] }

// chance reports true once in n times.
func (h *historian) chance(n int) bool { return h.rng.IntN(n) == 0 }

// actor returns the actor of a request, sometimes with a key.
func (h *historian) actor() command.Actor {
	a := pick(h, h.ada, h.ada, h.ada, h.other)
	if keys := h.view().Keys(a.Org); len(keys) > 0 && h.chance(4) {
		a.Key = keys[h.rng.IntN(len(keys))].ID
	}
	return a
}

func (h *historian) request() command.Op {
	return h.op(h.org, fmt.Sprint("request ", h.rng.IntN(100)))
}

// send applies cmd, or sometimes an earlier command, unchanged or with another
// request under the same op.
func (h *historian) send(cmd command.Command) {
	h.sent = append(h.sent, cmd)
	if h.chance(12) {
		cmd = h.sent[h.rng.IntN(len(h.sent))]
		if s, ok := cmd.(command.Submit); ok && h.chance(2) {
			s.Op.Request = hash("forged")
			cmd = s
		}
	}
	if h.chance(6) { // Several commands in one entry.
		h.do(cmd, h.sent[h.rng.IntN(len(h.sent))], command.Tick{Term: h.term})
		return
	}
	h.do(cmd)
}

// step performs one random operation.
func (h *historian) step() {
	switch n := h.rng.IntN(100); {
	case n < 22:
		h.submitSome()
	case n < 27:
		h.send(h.takeOne())
	case n < 52:
		h.planSome()
	case n < 62:
		h.workOne(h.startOne)
	case n < 76:
		h.workOne(h.finishOne)
	case n < 80:
		h.endSome()
	case n < 82:
		h.giveUpSome()
		h.serviceThing()
		h.modelThing()
	case n < 88:
		h.nodeThing()
	case n < 93:
		h.peopleThing()
	default:
		h.now = h.now.Add(time.Duration(h.rng.IntN(20)) * time.Minute)
		h.send(command.Tick{Term: h.term})
	}
}

func (h *historian) submitSome() {
	a := h.actor()
	e := compute.Execution{
		ID: h.executionID(), Priority: h.rng.IntN(3),
		Preemptible: h.chance(2), MaxRetries: pick(h, 0, 0, 1, 3), Tags: pick(h, nil, nil, []string{"red"}, []string{"red", "blue", "red"}),
		Profile: pick(h, "cpu", "cpu.3x", "t4", "t4.250m", "t4.2x", "h100", "h100.2x", "a100.700m",
			"l40s", "b200", "t4.8x", "a100.mig_3g_20gb", "t4.333m", "t4.1m", "?"),
		Timeout:    pick(h, time.Second, time.Minute, 10*time.Minute, 3*time.Hour, 0),
		MaxCredits: pick(h, 0, 0, 0, 50, 1000, 30_000, compute.Credit),
	}
	if h.chance(3) {
		e.CallbackURLs = []string{"https://example.com/1", "https://example.com/2"}
	}
	if h.chance(4) {
		e.Kind, e.Selection = compute.KindSelection, &compute.Selection{}
		if h.chance(2) {
			e.Selection.GPUTypes = []string{"t4", "h100"}
		}
		e.Selection.Repeats = h.rng.IntN(4)
	}
	if h.chance(6) {
		e.Storage = &compute.StorageMount{Path: pick(h, "/mnt/s3", "/data/a", "mnt", "/a/../b"), Optional: h.chance(2)}
	}
	h.acceptSome(&e)
	op := h.request()
	op.Org = a.Org
	h.send(command.Submit{Op: op, Actor: a, Execution: e})
}

// acceptSome sometimes has an execution accept several GPU types.
func (h *historian) acceptSome(e *compute.Execution) {
	if !h.chance(4) {
		return
	}
	e.Profile = pick(h, "gpu.any", "gpu.any", "gpu.any.2x", "gpu.any.250m", "t4", "cpu")
	anyOf(pick(h, nil, []string{"t4", "h100"}, []string{"h100", "l40s", "a100"}, []string{"t4"}, []string{"?"})...)(e)
	e.MinCapability = pick(h, 0, 0, 0, 75)
}

func (h *historian) takeOne() command.Command {
	for e := range h.view().PendingSelections() {
		if h.chance(2) {
			continue
		}
		take := h.take(e.ID, []string{"gpu.t4", "gpu.h100", "gpu.a100", "gpu.b200"}[:h.rng.IntN(5)]...)
		for i := range take.Children {
			for n := 2; n <= e.Selection.Runs(); n++ {
				take.Children = append(take.Children, command.Child{
					ID: h.executionID(), Profile: take.Children[i].Profile, Repeat: n,
				})
			}
		}
		return take
	}
	return h.take(h.executionID(), "gpu.t4")
}

// serviceThing starts, scales and reconciles services like a leader that is ahead or
// behind, and reports readiness.
func (h *historian) serviceThing() {
	a := h.actor()
	op := h.request()
	op.Org = a.Org
	if h.chance(2) {
		e := compute.Execution{
			ID: h.executionID(), Kind: compute.KindService, Profile: pick(h, "cpu", "t4", "t4.250m", "?"),
			Service: &compute.Service{
				Replicas: h.rng.IntN(4), Restart: compute.Restart(h.rng.IntN(4)),
				BackoffFirst: time.Minute, BackoffMost: 5 * time.Minute, BackoffReset: 30 * time.Minute,
			},
			Serving: &compute.Serving{Port: h.rng.IntN(9000), ReadinessTimeout: time.Minute},
		}
		h.acceptSome(&e)
		if h.chance(3) {
			e.Inference = &compute.Inference{Engine: "echo", Model: "a/b", Args: []string{"--x"}}
			if key := h.view().DataKey(a.Org); key != nil && h.chance(2) {
				e.Inference.Token, e.Inference.Key = []byte(op.ID.String()), key.Number-uint64(h.rng.IntN(2))
			}
			e.Deployment = &compute.Deployment{
				Min: h.rng.IntN(3), Max: h.rng.IntN(4), TargetMilliRPS: 1000, TargetP95: time.Second, Starts: 1 + h.rng.IntN(3),
			}
			e.MinVRAMMiB, e.Deployment.AskedVRAMMiB = int64(h.rng.IntN(3)), int64(h.rng.IntN(2))
		}
		h.send(command.Submit{Op: op, Actor: a, Execution: e})
	}
	for parent := range h.view().Services() {
		c := command.StartReplicas{Term: h.term, Service: parent.ID}
		h.send(command.SurgeService{Term: h.term, Service: parent.ID})
		for n := range 5 {
			c.Replicas = append(c.Replicas, command.NewReplica{Number: n, ID: h.executionID()})
		}
		h.send(c)
		if h.chance(3) {
			h.send(command.ScaleService{Op: op, Actor: a, Service: parent.ID, Replicas: h.rng.IntN(5)})
		}
	}
	for d := range h.view().Deployments {
		switch h.rng.IntN(6) {
		case 3:
			model := *d.Inference
			model.Args = []string{"--n", strconv.Itoa(h.rng.IntN(9))}
			h.send(command.UpdateDeployment{Op: op, Actor: a, Deployment: d.ID, Model: &model})
		case 0:
			h.send(command.ChangeDeployment{Op: op, Actor: a, Deployment: d.ID, Start: h.chance(2)})
		case 1:
			h.send(command.ScaleDeployment{
				Term: h.term, Deployment: d.ID, Replicas: h.rng.IntN(5), Since: d.Deployment.ChangedAt,
			})
		case 2:
			h.send(command.ResumeDeployment{Deployment: d.ID})
		}
	}
	h.workOne(func(w compute.Work) {
		h.send(command.SetReady{
			Node: w.Attempt.Node, Execution: w.Execution.ID, Epoch: w.Attempt.Epoch, Ready: h.chance(2),
		})
	})
}

// giveUpSome stops runs of GPU selections like a faulty leader: any run, for
// any reason.
func (h *historian) giveUpSome() {
	for parent := range h.view().RunningSelections() {
		c := command.StopCandidates{Term: h.term, Parent: parent.ID}
		for _, child := range h.children(parent.ID) {
			if h.chance(2) {
				c.Stops = append(c.Stops, compute.CandidateStop{
					Execution: child.ID, Detail: "given up", Predicted: time.Minute,
					Reason: compute.ReasonEarlierRun + compute.Reason(h.rng.IntN(4)),
				})
			}
		}
		h.send(c)
	}
}

// planSome plans like a faulty scheduler: any node, GPUs free or not.
func (h *historian) planSome() {
	nodes := slices.Collect(h.view().Nodes())
	plan := command.CommitPlan{Term: h.term, ViewIndex: h.index}
	for e := range h.view().Queue() {
		n := nodes[h.rng.IntN(len(nodes))]
		switch {
		case h.chance(4):
			plan.Plan.Waiting = append(plan.Plan.Waiting, compute.Waiting{
				Execution: e.ID, Reason: compute.Reason(h.rng.IntN(12)),
			})
		case h.chance(5) && len(n.GPUs) > 0:
			plan.Plan.Assignments = append(plan.Plan.Assignments, compute.Assignment{
				Execution: e.ID, Node: n.ID,
				GPUs: []compute.GPUShare{{GPU: n.GPUs[0].ID, Milli: e.Request.MilliGPU}},
			})
		default:
			plan.Plan.Assignments = append(plan.Plan.Assignments, h.assign(e.ID, n.Name))
		}
	}
	plan.Plan.Preemptions = h.preemptions()
	h.send(plan)
}

// preemptions returns preemptions of attempts, most of them valid.
func (h *historian) preemptions() (out []compute.Preemption) {
	for e := range h.view().Queue() {
		for w := range h.view().Victims(e.Priority + h.rng.IntN(2)) {
			if h.chance(4) {
				out = append(out, compute.Preemption{
					Execution: w.Execution.ID, Epoch: w.Attempt.Epoch - uint64(h.rng.IntN(10)/9), For: e.ID,
				})
			}
		}
	}
	return out
}

// workOne calls do with a random live attempt.
func (h *historian) workOne(do func(compute.Work)) {
	var all []compute.Work
	for n := range h.view().Nodes() {
		all = append(all, h.view().Work(n.ID)...)
	}
	if len(all) > 0 {
		do(all[h.rng.IntN(len(all))])
	}
}

func (h *historian) startOne(w compute.Work) {
	c := h.started(w.Execution.ID)
	if h.chance(10) {
		c.Start.Epoch += uint64(h.rng.IntN(3)) - 1
	}
	h.send(c)
}

func (h *historian) finishOne(w compute.Work) {
	status := compute.StatusCompleted + compute.Status(h.rng.IntN(6)) // One too many.
	c := h.ended(w.Execution.ID, status, time.Duration(h.rng.IntN(7_200_000))*time.Millisecond)
	c.Outcome.Reason = compute.Reason(h.rng.IntN(20))
	if !w.Attempt.PreemptAt.IsZero() && h.chance(2) {
		c.Outcome.Status, c.Outcome.Reason = compute.StatusSystemFailure, compute.ReasonPreempted
	}
	c.Outcome.Ran = !h.chance(6)
	if h.view().Format() >= format.Newest && h.chance(3) {
		c.Outcome.Series = &compute.Hash{byte(h.rng.IntN(256))}
	}
	if h.chance(10) {
		c.Node.UUID = h.uuid()
	}
	h.send(c)
}

// endSome stops or deletes some executions.
func (h *historian) endSome() {
	a := h.actor()
	for e := range h.view().History(a.Org, fsm.HistoryFilter{}) {
		if !h.chance(6) {
			continue
		}
		op := h.request()
		op.Org = a.Org
		if e.Status.Terminal() {
			h.send(command.DeleteExecution{Op: op, Actor: a, Execution: e.ID})
			return
		}
		h.send(command.StopExecution{
			Op: op, Actor: a, Execution: e.ID,
			Stop: pick(h, compute.StopGraceful, compute.StopHard),
		})
	}
}

func (h *historian) nodeThing() {
	nodes := slices.Collect(h.view().Nodes())
	if len(nodes) == 0 {
		if h.view().Format() == format.Newest {
			h.Fatal("the last server is gone")
		}
		h.names++
		h.addNode(fmt.Sprint("new", h.names), "t4")
		return
	}
	n := nodes[h.rng.IntN(len(nodes))]
	switch h.rng.IntN(10) {
	case 0:
		h.send(command.SetNodeState{Term: h.term, Node: n.ID, State: pick(h, compute.NodeDown, compute.NodeUp)})
	case 1, 2:
		types := []string{"t4", "h100", "a100", "t4", "a100.mig_3g_20gb"}[:h.rng.IntN(6)]
		inv := inventory(n.ID, n.Name, n.InventoryVersion+uint64(h.rng.IntN(3)), types...)
		if len(inv.GPUs) > 0 && h.chance(3) {
			inv.GPUs[0].Health = compute.HealthFailed
		}
		if h.view().Format() == format.Newest && h.chance(3) {
			inv.EngineFault = "silent"
		}
		h.send(command.SetInventory{Term: h.term, Inventory: inv})
	case 3:
		h.send(command.DrainNode{Op: h.request(), Actor: h.root, Node: n.ID, Drained: h.chance(2)})
	case 4:
		if len(nodes) > 2 || h.view().Format() == format.Newest { // The newest format keeps the last node.
			remove := command.RemoveNode{Op: h.request(), Actor: h.root, Node: n.ID}
			if h.view().Format() == format.Newest && h.chance(2) {
				remove.Beside = []compute.NodeID{pick(h, nodes...).ID, {UUID: compute.UUID{9}}}[:1+h.rng.IntN(2)]
			}
			h.send(remove)
		}
	case 5:
		h.names++
		h.addNode(fmt.Sprint("new", h.names), pick(h, "t4", "h100", "l4"))
	case 6:
		var refs []command.AttemptRef
		for _, w := range h.view().Work(n.ID) {
			refs = append(refs, command.AttemptRef{Execution: w.Execution.ID, Epoch: w.Attempt.Epoch})
		}
		h.send(command.LoseAttempts{Term: h.term, Node: n.ID, Attempts: refs})
		h.term += uint64(h.rng.IntN(2))
	case 8: // A new epoch, rarely.
		if h.chance(4) {
			h.format = format.Newest
			h.send(command.RaiseEpoch{
				Term: h.term, Epoch: h.view().ClusterEpoch() + uint64(h.rng.IntN(3)),
				Cause: command.EpochCause(h.rng.IntN(3)), At: h.now.Add(time.Duration(h.rng.IntN(3)) * time.Hour),
			})
			h.now = max(h.now, h.view().Now())
		}
	case 9:
		h.send(command.SetBrake{Op: h.request(), Actor: pick(h, h.root, h.actor()), Share: new(h.rng.IntN(110)), Release: h.chance(2)})
	case 7: // Its program is replaced, possibly by an older one; perhaps all programs are new afterwards.
		renewed := *n
		renewed.Format = uint64(h.rng.IntN(format.Newest + 1))
		h.send(command.RegisterNode{Node: renewed})
		h.format = format.Newest
		h.send(command.SetFormat{Term: h.term, Format: uint64(h.rng.IntN(format.Newest + 2))})
	}
}

// priceThing sets or removes prices, or changes whether credits are enforced.
func (h *historian) priceThing(op command.Op) {
	switch h.rng.IntN(6) {
	case 0, 1:
		h.send(command.RemovePrice{
			Op: op, Actor: pick(h, h.root, h.actor()), Name: pick(h, "t4", "a100", "cpu", "v100"),
			BuiltIn: compute.Price(h.rng.IntN(3) * 50),
		})
	case 2:
		h.send(command.SetBillingMode{Op: op, Actor: pick(h, h.root, h.actor()), Meter: h.chance(2)})
	default:
		h.send(command.SetPrices{Op: op, Actor: h.root, Prices: map[string]compute.Price{
			"t4": compute.Price(h.rng.IntN(200)), "h100": 900, "cpu": 15, "a100": 550,
		}})
	}
}

func (h *historian) peopleThing() {
	a := h.actor()
	op := h.request()
	op.Org = a.Org
	name := fmt.Sprint("name ", h.rng.IntN(30))
	keys := h.view().Keys(a.Org)
	switch h.rng.IntN(14) {
	case 13:
		switch {
		case h.chance(2):
			h.objectThing(a, op)
			h.outputThing(a.Org)
		case h.chance(2):
			h.variableThing(a, op)
		case h.chance(2):
			h.budgetThing(a, op)
		case h.chance(2):
			h.environmentThing(a, op)
		default:
			h.orgThing(a, op)
		}
	case 12:
		h.callbackThing(a, op)
	case 8, 9:
		h.quotaThing(a, op)
	case 10, 11:
		h.memberThing(a, op)
	case 0:
		h.send(command.Grant{Op: op, Actor: h.root, Org: a.Org, Amount: compute.Credits(h.rng.IntN(1e6))})
	case 1:
		h.priceThing(op)
	case 2:
		h.send(command.CreateKey{Op: op, Actor: a, Key: compute.Key{ID: compute.KeyID{UUID: h.uuid()}, Lookup: name}})
	case 3:
		h.send(command.StoreRefresh{Op: op, Token: compute.RefreshToken{
			Hash: hash(name), Family: h.uuid(), User: a.User, ExpiresAt: h.now.Add(time.Hour),
		}})
	case 4:
		h.send(command.RotateRefresh{Old: hash(name), Next: compute.RefreshToken{Hash: hash(name + "'")}})
	case 5:
		h.send(command.AddSigningKey{Term: h.term, Key: compute.SigningKey{ID: name}})
	case 6:
		if len(keys) > 0 {
			used := map[compute.KeyID]compute.Instant{}
			for _, k := range keys {
				used[k.ID] = h.now
			}
			h.send(command.TouchKeys{Used: used})
			h.send(command.ToggleKey{Op: op, Actor: a, Key: keys[0].ID})
		}
	case 7:
		if len(keys) > 2 {
			h.send(command.DeleteKey{Op: op, Actor: a, Key: keys[1].ID})
		}
	}
}

// orgThing makes, changes and deletes organizations, and invites users to them.
func (h *historian) orgThing(a command.Actor, op command.Op) {
	if h.chance(3) { // In an organization that was made before.
		if joined := h.view().Memberships(a.User); len(joined) > 1 {
			a.Org, op.Org = joined[1].Org, joined[1].Org
		}
	}
	other := h.other
	if a.User == other.User {
		other = h.ada
	}
	email := pick(h, "nobody@example.com", "")
	if u, ok := h.view().User(other.User); ok && email == "" {
		email = u.Email
	}
	slug := fmt.Sprint("org", h.rng.IntN(4))
	switch invites := h.view().Invites(a.Org); h.rng.IntN(8) {
	case 0:
		h.send(command.CreateOrg{Op: op, Actor: a, Org: compute.Org{ID: compute.OrgID{UUID: h.uuid()}, Slug: slug, Name: slug}})
	case 1:
		h.send(command.SetOrg{Op: op, Actor: a, Org: a.Org, Slug: pick(h, "", slug), Name: "named"})
	case 2:
		h.send(command.SetDefaultOrg{Op: op, Actor: a, Org: a.Org})
	case 3:
		if a.Org != h.ada.Org && a.Org != h.other.Org { // The others are used by all that follows.
			h.send(command.DeleteOrg{Op: op, Actor: a, Org: a.Org})
		}
	case 4, 5:
		h.send(command.PutInvite{Op: op, Actor: a, Invite: compute.Invite{
			ID: compute.InviteID{UUID: h.uuid()}, Org: a.Org, Email: email, Role: compute.OrgRole(h.rng.IntN(3)), Hash: compute.Hash{1},
		}})
	case 6:
		if len(invites) > 0 {
			other.TokenVersion = 0
			h.send(command.AnswerInvite{Actor: other, Org: a.Org, Invite: invites[0].ID, Hash: compute.Hash{byte(h.rng.IntN(2))}, Accept: h.chance(2)})
		}
	case 7:
		if len(invites) > 0 && h.chance(3) {
			if h.chance(9) && h.view().Format() == format.Newest {
				h.send(command.DeleteUser{Op: op, Actor: other}) // Mostly refused: both own organizations in use.
			}
			h.send(command.RevokeInvite{Op: op, Actor: a, Org: a.Org, Invite: invites[0].ID})
		}
	}
}

// callbackSecretThing sets or removes the secret of an organization's callbacks. Now and
// then another request was faster.
func (h *historian) callbackSecretThing(a command.Actor, op command.Op) {
	if h.chance(4) {
		h.send(command.RemoveCallbackSecret{Op: op, Actor: a, Org: a.Org})
		return
	}
	set := command.SetCallbackSecret{Op: op, Actor: a, Org: a.Org, Secret: compute.CallbackSecret{
		Number: 1, Key: 1, Sealed: []byte("sealed"),
	}}
	if o, ok := h.view().Org(a.Org); ok && len(o.Signing) > 0 && !h.chance(5) {
		set.Secret.Number = o.Signing[len(o.Signing)-1].Number + 1
	}
	if h.view().DataKey(a.Org) == nil || h.chance(9) {
		set.Key = &compute.DataKey{Number: 1, Sealed: []byte("key")}
	}
	h.send(set)
}

// variableThing keeps or removes variables. Now and then a secret is sealed by a key
// that another request was faster to make.
func (h *historian) variableThing(a command.Actor, op command.Op) {
	if h.view().Format() == format.Newest && h.chance(4) {
		h.callbackSecretThing(a, op)
		return
	}
	if h.chance(4) {
		remove := command.RemoveVariables{Op: op, Actor: a}
		if kept := h.view().Variables(a.Org, a.User); len(kept) > 0 && h.chance(2) {
			remove.ID = kept[0].ID
		}
		h.send(remove)
		return
	}
	put := command.PutVariables{Op: op, Actor: a}
	for i := range 1 + h.rng.IntN(3) {
		v := compute.Variable{ID: compute.VariableID{UUID: h.uuid()}, Name: fmt.Sprint("V", i, h.rng.IntN(60)), Value: "shown"}
		if h.chance(2) {
			v.Value, v.Secret, v.Sealed, v.Key = "", true, []byte("sealed"), 1
			if h.view().DataKey(a.Org) == nil || h.chance(5) {
				put.Key = &compute.DataKey{Number: 1, Sealed: []byte("key")}
			}
		}
		put.Variables = append(put.Variables, v)
	}
	h.send(put)
}

// outputThing archives what attempts of an organization printed, whether they have ended
// or not, and drops some of it.
func (h *historian) outputThing(org compute.OrgID) {
	c := command.ArchiveOutputs{Outputs: []compute.OutputArchive{{Execution: h.executionID(), Epoch: 1, Blob: compute.Hash{1}, Size: 1}}}
	for e := range h.view().History(org, fsm.HistoryFilter{}) {
		c.Outputs = append(c.Outputs, compute.OutputArchive{
			Execution: e.ID, Epoch: 1 + uint64(h.rng.IntN(2)), Blob: compute.Hash{byte(h.rng.IntN(3))}, Whole: true,
			Size: int64(h.rng.IntN(40)), Partial: h.chance(3),
		})
		if h.chance(4) {
			break
		}
	}
	h.send(c)
	if h.chance(6) {
		h.send(command.TrimOutputs{Term: h.term, Bytes: int64(h.rng.IntN(200))})
	}
}

// objectThing stores objects, in one piece, in parts or as copies, and deletes them.
func (h *historian) objectThing(a command.Actor, op command.Op) {
	key := fmt.Sprintf("%c/%d", 'a'+h.rng.IntN(3), h.rng.IntN(20))
	uploads := slices.Collect(h.view().ObjectUploads(a.Org))
	put := command.PutObject{Op: op, Actor: a, Object: compute.Object{
		Key: key, Size: int64(1 + h.rng.IntN(50)), Blob: compute.Hash{byte(h.rng.IntN(9)), 1}, Whole: h.chance(2),
	}}
	switch n := h.rng.IntN(8); {
	case h.view().Bucket(a.Org) == nil:
		h.send(command.CreateBucket{Actor: a, Bucket: compute.Bucket{Sealed: []byte("key")}})
	case n == 0:
		h.send(command.DeleteObjects{Op: op, Actor: a, Keys: []string{key}})
	case n == 1:
		h.send(command.DeleteObjects{Op: op, Actor: a, Prefix: key[:2]})
	case n == 2:
		h.send(command.StartObjectUpload{Op: op, Actor: a, Upload: compute.ObjectUpload{ID: compute.ObjectUploadID{UUID: h.uuid()}, Key: key}})
	case n == 3 && h.chance(4):
		h.send(command.SetBucketLimits{Op: op, Actor: h.root, Org: a.Org, MaxBytes: int64(h.rng.IntN(500)), MaxObjects: h.rng.IntN(30)})
	case n < 6 && len(uploads) > 0:
		part := compute.ObjectPart{
			Upload: uploads[0].ID, Number: 1 + h.rng.IntN(3), Size: int64(1 + h.rng.IntN(30)), Blob: compute.Hash{byte(h.rng.IntN(9)), 2},
		}
		h.send(command.PutObjectPart{Op: op, Actor: a, Part: part})
	case n == 6 && len(uploads) > 0:
		put.Upload, put.Revision = uploads[0].ID, uploads[0].Revision-uint64(h.rng.IntN(2))
		if h.chance(3) {
			h.send(command.AbortObjectUpload{Op: op, Actor: a, Upload: put.Upload})
		}
		h.send(put)
	default:
		for o := range h.view().Objects(a.Org, key) {
			if h.chance(2) {
				put.From, put.FromBlob, put.Match = o.Key, o.Blob, pick(h, "", "*", o.Tag())
			}
			break
		}
		h.send(put)
	}
}

// callbackThing records a try of a due callback, or has those of its execution sent
// again.
func (h *historian) callbackThing(a command.Actor, op command.Op) {
	for c := range h.view().DueCallbacks(h.now.Add(time.Hour)) {
		d := compute.Delivery{
			Execution: c.Execution, Org: c.Org, Number: c.Number + h.rng.IntN(2), At: h.now, Delivered: h.chance(2), Code: 503,
		}
		if h.chance(2) {
			d.NextAt = h.now.Add(time.Duration(h.rng.IntN(3600)) * time.Second)
		}
		h.send(command.RecordDeliveries{Term: h.term, Deliveries: []compute.Delivery{d}})
		if h.chance(3) {
			h.send(command.RedeliverCallbacks{Op: op, Actor: a, Execution: c.Execution})
		}
		return
	}
}

// budgetThing sets and removes budgets and buys credits.
func (h *historian) budgetThing(a command.Actor, op command.Op) {
	if h.view().Format() < format.Newest {
		return
	}
	b := compute.Budget{
		Org: a.Org, MaxCredits: compute.Credits(h.rng.IntN(3_000_000)), Monthly: h.chance(2), Enforce: h.chance(2),
		URL: pick(h, "", "https://example.com/budget", "http://no"),
	}
	switch keys := h.view().Keys(a.Org); h.rng.IntN(3) {
	case 0:
		b.User = pick(h, h.ada.User, h.other.User)
	case 1:
		if len(keys) > 0 {
			b.Key = keys[h.rng.IntN(len(keys))].ID
		}
	}
	switch h.rng.IntN(10) {
	case 9:
		if h.chance(4) {
			h.send(command.SealWith{Op: op, Actor: pick(h, a, h.root), Prefixes: [][]byte{[]byte("more ")}})
		}
		if h.chance(4) {
			h.send(command.RotateRootToken{
				Op: op, Actor: pick(h, a, h.root), Token: compute.Hash{byte(h.rng.IntN(3))}, Before: h.view().RootToken(),
			})
			if h.chance(3) {
				h.send(command.RotateKey{Op: op, Actor: h.root, Org: a.Org, Retire: true}) // With the token before.
			}
			h.root.TokenVersion = h.view().RootVersion()
		}
		c := command.Reseal{Op: op, Actor: h.root}
		for _, k := range h.view().SealedOtherwise([]byte("more ")) {
			k.Sealed = []byte("more keys")
			c.Keys = append(c.Keys, k)
		}
		h.send(c)
	case 8:
		if key := h.view().DataKey(a.Org); key != nil {
			c := command.RotateKey{Op: op, Actor: h.root, Org: a.Org, Retire: h.chance(3)}
			if h.chance(2) {
				c.Key = &compute.DataKey{Number: key.Number + uint64(h.rng.IntN(2)), Sealed: []byte("more keys")}
			}
			for _, v := range h.view().SecretsOf(a.Org) {
				fresh := *v
				fresh.Sealed, fresh.Key = []byte("again"), key.Number
				c.Variables = append(c.Variables, fresh)
			}
			for _, text := range h.view().TextsBefore(a.Org, key.Number) {
				c.Texts = append(c.Texts, command.ResealedText{Before: text.Sealed, Sealed: []byte("again"), Key: key.Number})
			}
			h.send(c)
		}
	case 6:
		name := fmt.Sprint("guest", h.rng.IntN(6))
		h.send(command.SignUp{
			User: compute.User{ID: compute.UserID{UUID: h.uuid()}, Email: name, Subject: pick(h, "", "id "+name)},
			Org:  compute.Org{ID: compute.OrgID{UUID: h.uuid()}, Slug: pick(h, name, "ada")}, Join: h.chance(2),
		})
	case 7:
		h.send(command.LinkUser{
			User: a.User, Subject: fmt.Sprint("id ", h.rng.IntN(3)),
			Email: pick(h, "", fmt.Sprint("guest", h.rng.IntN(6))), FullName: pick(h, "", "Ada"),
		})
	case 0:
		h.send(command.RemoveBudget{Op: op, Actor: a, Org: b.Org, Key: b.Key, User: b.User})
	case 1:
		h.send(command.RecordPurchase{Purchase: compute.Purchase{Org: a.Org, ID: fmt.Sprint("cs_", h.rng.IntN(5)), Amount: b.MaxCredits}})
	case 2:
		h.send(command.CreateKey{Op: op, Actor: a, MaxCredits: b.MaxCredits, Key: compute.Key{
			ID: compute.KeyID{UUID: h.uuid()}, Lookup: fmt.Sprint("limited ", h.rng.IntN(30)),
		}})
	case 3:
		by := pick(h, h.root, a)
		by.From, by.Request = "192.0.2.1", "r"
		h.send(command.RecordDeed{Op: op, Actor: by, Action: "backup.save"})
	default:
		h.send(command.SetBudget{Op: op, Actor: pick(h, a, h.root), Budget: b})
	}
}

// memberThing changes users and memberships.
func (h *historian) memberThing(a command.Actor, op command.Op) {
	user := pick(h, h.ada.User, h.other.User)
	role := compute.OrgRole(h.rng.IntN(3))
	by := pick(h, a, h.root)
	switch h.rng.IntN(5) {
	case 0:
		h.send(command.SetUser{Op: op, Actor: by, User: user, Password: "hash", Temporary: h.chance(2)})
	case 1:
		h.send(command.SetUser{Op: op, Actor: h.root, User: h.other.User, Disabled: new(h.chance(3))})
	case 2, 3:
		h.send(command.SetMember{Op: op, Actor: by, Org: a.Org, User: user, Role: role})
	case 4:
		h.send(command.RemoveMember{Op: op, Actor: by, Org: a.Org, User: user})
	}
}

// quotaThing changes a quota of an organization, a key, a tag or a hardware profile.
func (h *historian) quotaThing(a command.Actor, op command.Op) {
	q := compute.Quota{
		Org: a.Org, Concurrent: h.rng.IntN(5) - h.rng.IntN(2), MilliGPU: int64(h.rng.IntN(4)) * 1500,
	}
	switch keys := h.view().Keys(a.Org); h.rng.IntN(4) {
	case 0:
		q.Weight = h.rng.IntN(300)
	case 1:
		q.Tag = pick(h, "red", "blue", "green")
	case 2:
		if len(keys) > 0 {
			q.Key = keys[h.rng.IntN(len(keys))].ID
		}
	case 3:
		if h.view().Format() >= format.Rotation {
			q.Profile = pick(h, "gpu.t4", "gpu.t4.2x", "gpu.h100", "gpu.a100.500m", "cpu")
		}
		if q.Profile != "" && h.chance(4) {
			q.Concurrent, q.MilliGPU, q.Denied = 0, 0, true
		}
	}
	h.send(command.SetQuota{Op: op, Actor: pick(h, h.root, h.root, a), Quota: q})
}

// follower applies a historian's entries like Raft on another node: in its own
// batches, and sometimes from a snapshot.
type follower struct {
	t    *testing.T
	fsm  *fsm.FSM
	rng  *rand.Rand
	done int // Entries applied.
}

func (f *follower) catchUp(entries [][]byte) {
	for f.done < len(entries) {
		n := min(1+f.rng.IntN(20), len(entries)-f.done)
		logs := make([]*raft.Log, n)
		for i := range logs {
			logs[i] = &raft.Log{Index: uint64(f.done + i + 1), Type: raft.LogCommand, Data: entries[f.done+i]}
		}
		f.fsm.ApplyBatch(logs)
		f.done += n
	}
}

// restart continues from a snapshot of the follower itself.
func (f *follower) restart() {
	var buf bytes.Buffer
	if err := f.fsm.View().WriteSnapshot(&buf); err != nil {
		f.t.Fatal(err)
	}
	restored, err := restore(buf.Bytes())
	if err != nil {
		f.t.Fatal(err)
	}
	f.fsm = restored
}

// TestReplicasAgree applies random histories to two machines, one of which
// restarts from a snapshot on the way. All invariants must hold at any time,
// and both must end with the same bytes.
func TestReplicasAgree(t *testing.T) {
	const seeds, rounds, steps = 60, 4, 60
	var seen [compute.Statuses]int
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHistorian(t, seed)
			f := &follower{t: t, fsm: fsm.New(), rng: rand.New(rand.NewPCG(seed, 2))}
			ended := make(map[compute.ExecutionID]compute.Execution)
			for range rounds {
				for range steps {
					h.step()
				}
				h.checkEnds(t, ended)
				if err := h.view().Check(); err != nil {
					t.Fatal(err)
				}
				f.catchUp(h.entries)
				f.restart()
			}
			agree(t, h.fsm, f.fsm)
			checkSolvent(t, h.view())
			for _, org := range []compute.OrgID{h.org, h.other.Org} {
				_, _, by := h.view().Totals(org)
				for status, n := range by {
					seen[status] += n
				}
			}
		})
	}
	for status, n := range seen {
		if n == 0 {
			t.Errorf("no history ended with an execution that is %s", compute.Status(status))
		}
	}
}

// checkEnds fails when the record of an ended execution has changed since.
func (h *historian) checkEnds(t *testing.T, ended map[compute.ExecutionID]compute.Execution) {
	t.Helper()
	for _, org := range []compute.OrgID{h.org, h.other.Org} {
		for e := range h.view().History(org, fsm.HistoryFilter{}) {
			before, known := ended[e.ID]
			if known && (before.Status != e.Status || before.Billed != e.Billed ||
				before.Reason != e.Reason || before.FinishedAt != e.FinishedAt || before.Epoch != e.Epoch) {
				t.Errorf("execution %s ended as %+v and is now %+v", e.ID, before, *e)
			}
			if e.Status.Terminal() {
				ended[e.ID] = *e
			}
		}
	}
}

func agree(t *testing.T, a, b *fsm.FSM) {
	t.Helper()
	if a.View().Hash() != b.View().Hash() {
		t.Fatal("the replicas have different hashes")
	}
	var x, y bytes.Buffer
	if err := a.View().WriteSnapshot(&x); err != nil {
		t.Fatal(err)
	}
	if err := b.View().WriteSnapshot(&y); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x.Bytes(), y.Bytes()) {
		t.Fatal("the replicas have different snapshots")
	}
}

// checkSolvent fails when an organization holds more than it has, or was
// charged another amount than its executions cost.
func checkSolvent(t *testing.T, v *fsm.View) {
	t.Helper()
	for o := range v.Orgs() {
		a := v.Account(o.ID)
		if a.Available() < 0 && !v.Settings().Meter {
			t.Errorf("organization %s has %s available", o.Slug, a.Available())
		}
		var sum compute.Credits
		charges := make(map[compute.ExecutionID]compute.Credits)
		for e := range v.Ledger(o.ID, 0) {
			switch e.Kind {
			case compute.LedgerGrant:
				sum += e.Amount
			case compute.LedgerCharge:
				sum -= e.Amount
				if charges[e.Execution] != 0 {
					t.Errorf("execution %s was charged twice", e.Execution)
				}
				charges[e.Execution] = e.Amount
			case compute.LedgerHold, compute.LedgerRelease, compute.LedgerFork: // These do not change the balance.
			}
		}
		for e := range v.History(o.ID, fsm.HistoryFilter{}) {
			if !e.Kind.IsParent() && e.Billed != charges[e.ID] {
				t.Errorf("execution %s is billed %d, the ledger says %d", e.ID, e.Billed, charges[e.ID])
			}
		}
		if sum != a.Balance {
			t.Errorf("organization %s has a balance of %s, its ledger adds up to %s", o.Slug, a.Balance, sum)
		}
	}
}

func TestResultsAgree(t *testing.T) {
	h := newHistorian(t, 1000)
	for range 200 {
		h.step()
	}
	a, b := fsm.New(), fsm.New()
	for i, entry := range h.entries {
		l := &raft.Log{Index: uint64(i + 1), Type: raft.LogCommand, Data: entry}
		x, y := a.Apply(l).([][]byte), b.Apply(l).([][]byte)
		if len(x) != len(y) || !slices.EqualFunc(x, y, bytes.Equal) {
			t.Fatalf("entry %d has different results", i+1)
		}
	}
	agree(t, a, h.fsm)
}
