package fsm

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"berth/compute"
	"berth/compute/requirements"
	"berth/fsm/archive"
	"berth/fsm/command"
	"berth/fsm/store"
)

// environmentKey is where an environment is among all: those of the whole cluster
// come first.
type environmentKey struct {
	org  compute.UUID
	name string
}

func byEnvironment(a, b environmentKey) int {
	return cmp.Or(byUUID(a.org, b.org), strings.Compare(a.name, b.name))
}

func environmentKeyOf(e *compute.Environment) environmentKey {
	return environmentKey{e.Org.UUID, e.Name}
}

// environmentTables has the named environments.
type environmentTables struct {
	environments store.Records[environmentKey, compute.Environment]
}

func newEnvironmentTables() environmentTables {
	return environmentTables{environments: store.NewRecords(byEnvironment, environmentKeyOf)}
}

// Environments yields all environments.
func (v *environmentTables) Environments() iter.Seq[*compute.Environment] {
	return v.environments.Values()
}

// EnvironmentsOf returns the environments that executions of an organization may use,
// by name. Its own one hides one of the cluster with the same name.
func (v *environmentTables) EnvironmentsOf(org compute.OrgID) []*compute.Environment {
	byName := make(map[string]*compute.Environment)
	for e := range v.environments.Values() {
		if e.Org == org || e.Org.IsZero() && byName[e.Name] == nil {
			byName[e.Name] = e // Those of the cluster come first.
		}
	}
	out := make([]*compute.Environment, 0, len(byName))
	for _, e := range byName { // Any order will do: it is sorted.
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *compute.Environment) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Environment returns the environment of an organization, or with a zero one of the
// cluster, with the name.
func (v *environmentTables) Environment(org compute.OrgID, name string) (*compute.Environment, bool) {
	return v.environments.Get(environmentKey{org.UUID, name})
}

// environmentFor returns the environment of a name for the executions of an organization.
func (v *environmentTables) environmentFor(org compute.OrgID, name string) (*compute.Environment, bool) {
	if e, ok := v.Environment(org, name); ok {
		return e, true
	}
	return v.Environment(compute.OrgID{}, name)
}

// environmentByID returns the environment with the identifier.
func (v *environmentTables) environmentByID(id compute.EnvironmentID) (*compute.Environment, bool) {
	for e := range v.environments.Values() {
		if e.ID == id {
			return e, true
		}
	}
	return nil, false
}

// createEnvironment makes an environment, which nodes prepare from then on.
func (s *membership) createEnvironment(c command.CreateEnvironment) command.Result {
	env := c.Environment
	if refusal := s.admitEnvironment(c.Actor, env.Org); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if refusal := s.checkEnvironment(&env); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if env.Path != "" {
		if refusal := s.access.admitOperator(c.Actor); refusal != nil {
			return command.Result{Refusal: refusal}
		}
	}
	env.CreatedAt, env.Nodes = s.view.meta.Now, nil
	s.view.environments.Put(&env)
	return command.Result{ID: env.ID.UUID}
}

// admitEnvironment refuses an actor that may not change environments of an organization,
// or with a zero one those of the cluster.
func (s *membership) admitEnvironment(a command.Actor, org compute.OrgID) *compute.Error {
	if org.IsZero() || a.Root {
		return s.access.admitOperator(a)
	}
	if a.Org != org {
		return compute.Errorf(compute.CodeForbidden, "you are not a member of this organization").Named("not_a_member")
	}
	return s.access.admitRole(a, compute.OrgAdmin)
}

// checkEnvironment refuses an environment that is malformed or one too many.
func (s *membership) checkEnvironment(e *compute.Environment) *compute.Error {
	why := ""
	if e.Path != "" {
		why = cmp.Or(compute.BadEnvironmentPath(e.Path), compute.BadInterpreter(e.Interpreter))
	}
	_, again := s.view.environmentByID(e.ID)
	switch {
	case why != "":
		return compute.Errorf(compute.CodeInvalid, "%s", why).Named("environment_path")
	case e.ID.IsZero() || again || e.Name == "" || len(e.Name) > compute.MaxEnvironmentName ||
		len(e.Requirements) > compute.MaxEnvironmentText || (e.Path == "") == (e.Requirements == "") ||
		e.Path == "" && (e.Interpreter != "" || len(requirements.Check(e.Requirements)) > 0):
		return compute.Errorf(compute.CodeInvalid,
			"an environment has a name, and requirements or a path").Named("environment")
	}
	if org, known := s.view.orgs.Get(e.Org); !e.Org.IsZero() && (!known || !org.DeletedAt.IsZero()) {
		return compute.Errorf(compute.CodeNotFound, "there is no such organization").Named("not_found")
	}
	if _, exists := s.view.Environment(e.Org, e.Name); exists {
		return compute.Errorf(compute.CodeConflict,
			"the environment %q exists: delete it first, or choose another name", e.Name).Named("environment_exists")
	}
	own := 0
	for other := range s.view.environments.Values() {
		if other.Org == e.Org && !e.Org.IsZero() {
			own++
		}
	}
	if own >= compute.MaxOrgEnvironments || s.view.environments.Len() >= compute.MaxEnvironments {
		return compute.Errorf(compute.CodeConflict, "an organization has at most %d environments, the cluster %d",
			compute.MaxOrgEnvironments, compute.MaxEnvironments).Named("too_many_environments")
	}
	return nil
}

// deleteEnvironment removes an environment that no live execution needs.
func (s *membership) deleteEnvironment(c command.DeleteEnvironment) command.Result {
	if refusal := s.admitEnvironment(c.Actor, c.Org); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.Environment(c.Org, c.Name)
	if !ok {
		return refuse(compute.CodeNotFound, "not_found", "No such environment.")
	}
	live := 0
	for k := range s.view.live.Keys(archive.Place{}) {
		if e, ok := s.view.executions.Get(k.ID); ok && e.Environment.ID == known.ID {
			live++
		}
	}
	if live > 0 {
		return refuse(compute.CodeConflict, "environment_in_use",
			"%d executions that have not ended need the environment %q: wait for them, or stop them", live, known.Name)
	}
	s.view.environments.Drop(environmentKeyOf(known))
	return command.Result{ID: known.ID.UUID}
}

// reportEnvironment records how far a node is with an environment.
func (s *membership) reportEnvironment(c command.ReportEnvironment) command.Result {
	known, ok := s.view.environmentByID(c.Environment)
	if _, there := s.view.nodes.Get(c.Node); !ok || !there {
		return refuse(compute.CodeNotFound, "not_found", "No such environment.")
	}
	report := compute.NodeEnvironment{
		Node: c.Node, Status: c.Status, SizeMiB: max(c.SizeMiB, 0),
		Error: compute.Clip(c.Error, compute.MaxEnvironmentNote), At: s.view.meta.Now,
	}
	if had := known.On(c.Node); had != nil && had.Same(&report) {
		return command.Result{Repeat: true}
	}
	env := *known
	env.Nodes = slices.DeleteFunc(slices.Clone(known.Nodes), func(n compute.NodeEnvironment) bool {
		return n.Node == c.Node
	})
	env.Nodes = append(env.Nodes, report)
	slices.SortFunc(env.Nodes, func(a, b compute.NodeEnvironment) int { return byNode(a.Node, b.Node) })
	s.view.environments.Put(&env)
	return command.Result{ID: env.ID.UUID}
}

// forgetNode removes the reports of a node that was removed.
func (s *membership) forgetNode(id compute.NodeID) {
	for _, known := range slices.Collect(s.view.environments.Values()) {
		if known.On(id) == nil {
			continue
		}
		env := *known
		env.Nodes = slices.DeleteFunc(slices.Clone(known.Nodes), func(n compute.NodeEnvironment) bool {
			return n.Node == id
		})
		s.view.environments.Put(&env)
	}
}

// dropEnvironments removes the environments of an organization that ends.
func (s *identity) dropEnvironments(org compute.OrgID) {
	for _, e := range slices.Collect(s.view.environments.Values()) {
		if e.Org == org {
			s.view.environments.Drop(environmentKeyOf(e))
		}
	}
}

// findEnvironment sets the id of the environment that e names. It refuses an unknown
// one, and one that no node has or is preparing.
func (s *execution) findEnvironment(e *compute.Execution) *compute.Error {
	if e.Environment.Name == "" {
		return nil
	}
	env, ok := s.view.environmentFor(e.Org, e.Environment.Name)
	if !ok {
		list := "none"
		if all := s.view.EnvironmentsOf(e.Org); len(all) > 0 {
			names := make([]string, len(all))
			for i, other := range all {
				names[i] = other.Name
			}
			list = strings.Join(names, ", ")
		}
		return compute.Errorf(compute.CodeInvalid, "there is no environment %q; there are: %s", e.Environment.Name, list).
			Named("unknown_environment")
	}
	if env.Status() == compute.EnvironmentFailed && len(env.Nodes) >= s.view.nodes.Len() {
		return compute.Errorf(compute.CodeConflict, "the environment %q failed on every node: %s",
			e.Environment.Name, env.Failure()).Named("environment_failed")
	}
	e.Environment.ID = env.ID
	return nil
}
