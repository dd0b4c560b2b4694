package fsm_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// environment makes an environment of an organization, or with a zero one of the
// cluster.
func (w *world) environment(by command.Actor, org compute.OrgID, name string) compute.EnvironmentID {
	w.Helper()
	id := compute.EnvironmentID{UUID: w.uuid()}
	w.must(command.CreateEnvironment{Actor: by, Environment: compute.Environment{
		ID: id, Org: org, Name: name, Requirements: "numpy==2.1.0",
	}})
	return id
}

func inEnvironment(name string) func(*compute.Execution) {
	return func(e *compute.Execution) { e.Environment.Name = name }
}

// offer has a node report an environment, and offer it if it is ready.
func (w *world) offer(node string, id compute.EnvironmentID, status compute.EnvironmentStatus, why string) {
	w.Helper()
	n := w.node(node)
	w.must(command.ReportEnvironment{Node: n.ID, Environment: id, Status: status, SizeMiB: 3, Error: why})
	if status == compute.EnvironmentReady {
		inv := compute.Inventory{
			Node: n.ID, Version: n.InventoryVersion + 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB, GPUs: n.GPUs,
			Offers: append(slices.Clone(n.Offers), compute.EnvironmentOffer(id.String())),
		}
		slices.Sort(inv.Offers)
		w.must(command.SetInventory{Term: w.term, Inventory: inv})
	}
}

// TestEnvironments holds that an execution gets the environment that had the name when
// it was submitted, on a node that has it and nowhere else.
func TestEnvironments(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	shared := w.environment(w.root, compute.OrgID{}, "torch")
	id := w.submit("cpu", inEnvironment("torch"))
	if e := w.get(id); e.Environment.ID != shared || !slices.Equal(e.Request.Needs, []compute.Offer{
		compute.EnvironmentOffer(shared.String()),
	}) {
		t.Errorf("it needs %v", e.Request.Needs)
	}
	own := w.environment(w.ada, w.org, "torch") // It hides the other one.
	hidden := w.submit("cpu", inEnvironment("torch"))
	if e := w.get(hidden); e.Environment.ID != own {
		t.Errorf("the organization's own is not meant: %v", e.Environment.ID)
	}
	if all := w.view().EnvironmentsOf(w.org); len(all) != 1 || all[0].ID != own {
		t.Errorf("%d are listed", len(all))
	}
	w.offer("n1", shared, compute.EnvironmentReady, "")
	w.offer("n2", shared, compute.EnvironmentFailed, "no such thing")
	plan := command.CommitPlan{Term: w.term, Plan: compute.Plan{Assignments: []compute.Assignment{
		w.assign(id, "n2"), w.assign(hidden, "n1"),
	}}}
	if r := w.must(plan); r.Count != 0 {
		t.Errorf("%d are placed where their environment is not", r.Count)
	}
	w.place("n1", id)
	env, _ := w.view().Environment(compute.OrgID{}, "torch")
	if env.Status() != compute.EnvironmentReady || env.SizeMiB() != 3 || env.Failure() != "no such thing" || len(env.Nodes) != 2 {
		t.Errorf("it is %s: %+v", env.Status(), env.Nodes)
	}
	if r := w.must(command.ReportEnvironment{
		Node: w.node("n1").ID, Environment: shared, Status: compute.EnvironmentReady, SizeMiB: 3,
	}); !r.Repeat {
		t.Error("the same report is recorded twice")
	}
	remove := command.DeleteEnvironment{Actor: w.root, Name: "torch"}
	w.refused(remove, compute.CodeConflict, "environment_in_use")
	w.must(w.started(id))
	w.must(w.ended(id, compute.StatusCompleted, time.Second))
	w.must(remove)
	w.must(command.StopExecution{Actor: w.ada, Execution: hidden, Stop: compute.StopHard})
	w.must(command.DeleteEnvironment{Actor: w.ada, Org: w.org, Name: "torch"})
	w.refused(remove, compute.CodeNotFound, "not_found")
}

// TestEnvironmentFailedEverywhere checks that executions that could never start are
// refused.
func TestEnvironmentFailedEverywhere(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	id := w.environment(w.root, compute.OrgID{}, "torch")
	for n := range w.view().Nodes() {
		w.must(command.ReportEnvironment{Node: n.ID, Environment: id, Status: compute.EnvironmentFailed, Error: "no wheel"})
	}
	c := w.python("cpu")
	c.Execution.Environment.Name = "torch"
	if r := w.do(c); r.Refusal == nil || r.Refusal.Detail != "environment_failed" {
		t.Errorf("it answers %+v", r)
	}
}

// TestEnvironmentRefusals lists actors and environments that are refused.
func TestEnvironmentRefusals(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	bea := w.member("bea", compute.OrgMember)
	good := compute.Environment{ID: compute.EnvironmentID{UUID: w.uuid()}, Org: w.org, Name: "torch", Requirements: "numpy"}
	with := func(by command.Actor, change func(*compute.Environment)) command.CreateEnvironment {
		env := good
		change(&env)
		return command.CreateEnvironment{Actor: by, Environment: env}
	}
	same := func(*compute.Environment) {}
	path := func(at string) func(*compute.Environment) {
		return func(e *compute.Environment) { e.Requirements, e.Path = "", at }
	}
	w.refused(with(bea, same), compute.CodeForbidden, "role_too_low")
	w.refused(with(w.other, same), compute.CodeForbidden, "not_a_member")
	w.refused(with(w.ada, func(e *compute.Environment) { e.Org = compute.OrgID{} }), compute.CodeForbidden, "not_an_operator")
	w.refused(with(w.ada, path("/opt/x")), compute.CodeForbidden, "not_an_operator")
	w.refused(with(w.root, path("opt/x")), compute.CodeInvalid, "environment_path")
	w.refused(with(w.root, path("/etc")), compute.CodeInvalid, "environment_path")
	w.refused(with(w.ada, func(e *compute.Environment) { e.Requirements = "-e ." }), compute.CodeInvalid, "environment")
	w.refused(with(w.ada, func(e *compute.Environment) { e.Name = "" }), compute.CodeInvalid, "environment")
	for i := range compute.MaxOrgEnvironments {
		w.environment(w.ada, w.org, fmt.Sprint("e", i))
	}
	w.refused(with(w.ada, same), compute.CodeConflict, "too_many_environments")
	w.refused(with(w.ada, func(e *compute.Environment) { e.Name = "e1" }), compute.CodeConflict, "environment_exists")
	c := w.python("cpu")
	c.Execution.Environment.Name = "none"
	if r := w.do(c); r.Refusal == nil || r.Refusal.Detail != "unknown_environment" {
		t.Errorf("it answers %+v", r)
	}
	w.refused(command.ReportEnvironment{Environment: good.ID}, compute.CodeNotFound, "not_found")
}

// environmentThing makes, reports on and deletes environments, and submits executions
// that need them.
func (h *historian) environmentThing(a command.Actor, op command.Op) {
	org := pick(h, a.Org, a.Org, compute.OrgID{})
	by := pick(h, a, a, h.root)
	name := fmt.Sprint("env", h.rng.IntN(3))
	switch all := slices.Collect(h.view().Environments()); {
	case len(all) == 0 || h.chance(3):
		h.send(command.CreateEnvironment{Op: op, Actor: by, Environment: compute.Environment{
			ID: compute.EnvironmentID{UUID: h.uuid()}, Org: org, Name: name, Requirements: "numpy",
		}})
	case h.chance(4):
		h.send(command.DeleteEnvironment{Op: op, Actor: by, Org: org, Name: name})
	case h.chance(2):
		e := compute.Execution{ID: h.executionID(), Profile: "cpu", Timeout: time.Minute, Environment: compute.EnvironmentRef{Name: name}}
		h.send(command.Submit{Op: op, Actor: a, Execution: e})
	default:
		for n := range h.view().Nodes() {
			h.send(command.ReportEnvironment{
				Node: n.ID, Environment: all[h.rng.IntN(len(all))].ID, Status: compute.EnvironmentStatus(h.rng.IntN(3)),
			})
			if h.chance(2) {
				inv := compute.Inventory{
					Node: n.ID, Version: n.InventoryVersion + 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB, GPUs: n.GPUs,
					Offers: []compute.Offer{all[0].Offer()},
				}
				h.send(command.SetInventory{Term: h.term, Inventory: inv})
			}
		}
	}
}
