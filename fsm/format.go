package fsm

import (
	"fmt"
	"slices"
	"strings"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// maxNamed is how many nodes a refusal lists.
const maxNamed = 3

// Format returns the newest format of which commands may be proposed. It never
// falls, so that a view that lags allows too little, never too much.
func (v *clusterState) Format() uint64 { return max(v.meta.Format, format.First) }

// CommonFormat returns the newest format that every registered server knows,
// including down servers, which apply the missed entries when they return.
func (v *nodeTables) CommonFormat() uint64 {
	common := uint64(0)
	for n := range v.Nodes() {
		if n.Role != compute.RoleServer {
			continue // It holds no replica.
		}
		if known := n.KnownFormat(); common == 0 || known < common {
			common = known
		}
	}
	return max(common, format.First)
}

// Allows returns the reason for which cmd may not be proposed: a registered
// server could not apply it, and would stop. The refusal is a conflict,
// "upgrade_required".
func (v *View) Allows(cmd command.Command) error {
	needed, err := command.Needs(cmd)
	if err != nil {
		return err
	}
	return v.allowsFormat(needed)
}

// allowsFormat returns the reason for which no command of a format may be
// proposed.
func (v *View) allowsFormat(want uint64) error {
	if want <= v.Format() {
		return nil
	}
	var old []string
	for n := range v.Nodes() {
		if n.Role == compute.RoleServer && n.KnownFormat() < want {
			old = append(old, fmt.Sprintf("%s (%s)", n.Name, n.Version))
		}
	}
	if len(old) == 0 {
		return compute.Errorf(compute.CodeConflict,
			"The cluster is being upgraded: try again in a moment.").Named("upgrade_required")
	}
	slices.Sort(old)
	more := ""
	if len(old) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(old)-maxNamed)
		old = old[:maxNamed]
	}
	return compute.Errorf(compute.CodeConflict,
		"Not while servers execute an older version of Berth: upgrade, or remove, %s%s",
		strings.Join(old, ", "), more).Named("upgrade_required")
}

// AllowsPrograms returns the reason for which executions may not yet be other
// than Python code without arguments: a server would ignore fields of a bundle
// that it does not know.
func (v *View) AllowsPrograms() error { return v.allowsFormat(format.Lab) }

// AllowsCells returns the reason for which executions may not yet be notebook cells:
// an older server would execute them as scripts.
func (v *View) AllowsCells() error { return v.allowsFormat(format.Services) }

// AllowsOrgs returns the reason for which users may not yet make organizations and
// invite others.
func (v *View) AllowsOrgs() error { return v.allowsFormat(format.Services) }

// AllowsCallbackSecrets returns the reason for which organizations may not yet have
// secrets that sign callbacks.
func (v *View) AllowsCallbackSecrets() error { return v.allowsFormat(format.Containers) }

// AllowsScopes returns the reason for which API keys may not yet be restricted: an
// older server would let them do everything.
func (v *View) AllowsScopes() error { return v.allowsFormat(format.Services) }

// AllowsVariables returns the reason for which users may not yet keep variables.
func (v *View) AllowsVariables() error { return v.allowsFormat(format.Services) }

// AllowsDeployments returns the reason for which no models may be deployed yet.
func (v *View) AllowsDeployments() error { return v.allowsFormat(format.Accounts) }

// AllowsUpdates returns the reason for which deployments may not yet be updated.
func (v *View) AllowsUpdates() error { return v.allowsFormat(format.Updates) }

// AllowsAskedVRAM returns the reason for which deployments may not yet record the GPU
// memory that was asked for.
func (v *View) AllowsAskedVRAM() error { return v.allowsFormat(format.Asked) }

// AllowsOutputsPrefix returns the reason for which no outputs may go to a bucket yet.
func (v *View) AllowsOutputsPrefix() error { return v.allowsFormat(format.Asked) }

// AllowsResealedTexts returns the reason for which credentials and tokens of executions may
// not yet be sealed again.
func (v *View) AllowsResealedTexts() error { return v.allowsFormat(format.Rotation) }

// AllowsCheckedPasswords returns the reason for which logins, and changes that a password
// confirms, may not yet be bound to the password that was checked.
func (v *View) AllowsCheckedPasswords() error { return v.allowsFormat(format.Rotation) }

// AllowsRenames returns the reason for which users do not yet get the address and the name that
// the identity provider has for them.
func (v *View) AllowsRenames() error { return v.allowsFormat(format.Rotation) }

// AllowsCallersOps returns the reason for which the ids of requests with an Idempotency-Key do
// not depend on their caller yet: an older node that gets a repeat makes others.
func (v *View) AllowsCallersOps() error { return v.allowsFormat(format.Rotation) }

// AllowsBoundCredentials returns the reason for which credentials that are derived from an API key
// do not name the key's value yet: an older node refuses that form.
func (v *View) AllowsBoundCredentials() error { return v.allowsFormat(format.Rotation) }

// AllowsModels returns the reason for which no models may be published yet.
func (v *View) AllowsModels() error { return v.allowsFormat(format.Serverless) }

// Settable returns the part of settings that every server can apply.
func (v *View) Settable(s command.Settings) command.Settings {
	if v.Format() < format.Containers {
		s.TimeoutDefault = 0
	}
	return s
}

// AllowsCosts returns the reason for which resources may not yet have costs.
func (v *View) AllowsCosts() error { return v.allowsFormat(format.Containers) }

// AllowsAccounts returns the reason for which there may be no budgets, purchases and
// accounts that people make themselves yet.
func (v *View) AllowsAccounts() error { return v.allowsFormat(format.Accounts) }

// AllowsEnvironments returns the reason for which there may be no named environments
// yet.
func (v *View) AllowsEnvironments() error { return v.allowsFormat(format.Containers) }

// AllowsMounts returns the reason for which executions may not yet see stored objects
// as files.
func (v *View) AllowsMounts() error { return v.allowsFormat(format.Accounts) }

// AllowsOutput returns the reason for which no output may be archived yet.
func (v *View) AllowsOutput() error { return v.allowsFormat(format.Output) }

// AllowsObjects returns the reason for which no objects may be stored yet.
func (v *View) AllowsObjects() error { return v.allowsFormat(format.Containers) }

// AllowsChunks returns the reason for which chunks of objects may not yet be sealed as
// they are since format.Chunks: an older server could not read them.
func (v *View) AllowsChunks() error { return v.allowsFormat(format.Chunks) }

// setFormat raises the format of the state, which every server must know. A
// replica that does not know it stops here with a clear message, because its
// program was replaced by an older one.
func (s *lifecycle) setFormat(c command.SetFormat) command.Result {
	switch common := s.view.CommonFormat(); {
	case c.Format <= s.view.Format():
		return command.Result{Repeat: true}
	case c.Format > common:
		return refuse(compute.CodeConflict, "upgrade_required",
			"a server knows format %d of the state only, not %d", common, c.Format)
	case c.Format > format.Newest:
		panic(errFormat(c.Format).Error())
	}
	if s.view.Format() < format.Rotation && c.Format >= format.Rotation {
		s.identity.markUnproven()
		s.membership.forgetInventories()
	}
	s.view.meta.Format = c.Format
	s.membership.judgeBrake() // Nodes may have been lost before this format added the brake.
	return command.Result{}
}

// checkFormat checks that every server knows the format of the state.
func (v checker) checkFormat() error {
	if v.view.CommonFormat() < v.view.Format() && v.view.nodes.Len() > 0 {
		return fmt.Errorf("the state has format %d, a server knows %d", v.view.Format(), v.view.CommonFormat())
	}
	return nil
}

// errFormat is the error of a program that is older than the state. Its code
// shows that nothing is damaged.
func errFormat(state uint64) *compute.Error {
	return compute.Errorf(compute.CodeConflict,
		"The state has format %d, this version of Berth knows %d: install a newer one.",
		state, format.Newest).Named("upgrade_required")
}

// tooOld refuses a server that could not apply the commands that the state
// allows.
func (s *membership) tooOld(n compute.Node) *compute.Error {
	if n.Role != compute.RoleServer || n.KnownFormat() >= s.view.Format() {
		return nil
	}
	return compute.Errorf(compute.CodeConflict,
		"the state has format %d, the node's version %q knows %d: install a newer one",
		s.view.Format(), n.Version, n.KnownFormat()).Named("node_too_old")
}
