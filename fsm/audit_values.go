package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// settings is the part of the state that a command of people replaces. A command that leaves it
// as it was has no line in an audit trail.
type settings struct {
	shown  string // The detail of the line shows it before and after the command.
	hidden string // It is compared only.
}

// settingsOf returns what cmd replaces, as it is in the state. It reports false for commands
// that do not replace something, and for those that no line of format 18 describes.
func (s *trail) settingsOf(cmd command.Command) (settings, bool) {
	if s.view.Format() < format.Rotation {
		return settings{}, false
	}
	switch c := cmd.(type) {
	case command.SetPrices:
		return settings{shown: s.pricesOf(pricedBy(&c))}, true
	case command.RemovePrice:
		return settings{shown: s.pricesOf([]string{c.Name})}, true
	case command.SetBillingMode:
		return settings{hidden: fmt.Sprint(s.view.meta.Settings.Meter)}, true
	case command.SetQuota:
		q, _ := s.view.quotas.Get(scopeOf(&c.Quota))
		return settings{shown: limitsOf(q)}, true
	case command.SetBudget:
		return s.budgetOf(spenderOf(&c.Budget)), true
	case command.RemoveBudget:
		return s.budgetOf(spender{c.Org, c.Key, c.User}), true
	case command.RevokeRefresh:
		t, ok := s.view.Refresh(c.Token)
		return settings{hidden: fmt.Sprint(ok && !t.Revoked)}, true
	}
	return s.recordOf(cmd)
}

// recordOf is settingsOf for users, organizations, nodes, models and buckets.
func (s *trail) recordOf(cmd command.Command) (settings, bool) {
	switch c := cmd.(type) {
	case command.SetUser:
		if u, ok := s.view.users.Get(c.User); ok {
			return settings{hidden: fmt.Sprint(u.Active, u.Temporary, u.PasswordHash)}, true
		}
	case command.LinkUser:
		if u, ok := s.view.users.Get(c.User); ok && (c.Email != "" || c.FullName != "") {
			return settings{shown: strings.TrimSpace(u.Email + " " + u.FullName)}, true
		}
	case command.SetMember:
		if m, ok := s.view.Membership(c.Org, c.User); ok {
			return settings{shown: m.Role.String()}, true
		}
		return settings{}, true
	case command.SetOrg:
		if o, ok := s.view.orgs.Get(c.Org); ok {
			return settings{hidden: fmt.Sprintf("%q %q %q", o.Slug, o.Name, o.BillingEmail)}, true
		}
	case command.TrustOrg:
		if o, ok := s.view.orgs.Get(c.Org); ok {
			return settings{hidden: fmt.Sprint(o.Trusted)}, true
		}
	case command.DrainNode:
		if n, ok := s.view.nodes.Get(c.Node); ok {
			return settings{hidden: fmt.Sprint(n.Drained, n.DrainBy)}, true
		}
	case command.SetBrake:
		return settings{hidden: s.brakeOf()}, true
	case command.SetModel:
		m, ok := s.view.models.Get(c.ID)
		if !ok {
			return settings{}, true
		}
		return settings{shown: modelOf(m.Deployment, m.Prices)}, true
	case command.SetBucketLimits:
		var b compute.Bucket
		if known, ok := s.view.buckets.Get(c.Org); ok {
			b = *known
		}
		limits := fmt.Sprintf("%d bytes, %d objects, %d bytes of a user", b.MaxBytes, b.MaxObjects, b.UserMaxBytes)
		return settings{shown: limits}, true
	}
	return settings{}, false
}

// brakeOf returns the share of the brake, since when it holds, and how many nodes are down that
// no release has given up.
func (s *trail) brakeOf() string {
	b, lost := s.view.Brake(), 0
	for n := range s.view.Nodes() {
		if n.State == compute.NodeDown && !n.Drained && n.ChangedAt > b.ReleasedAt {
			lost++
		}
	}
	return fmt.Sprint(b.SharePercent, b.Since, lost)
}

// modelOf returns which deployment answers for a model, and at which prices.
func modelOf(deployment compute.ExecutionID, prices compute.TokenPrices) string {
	return fmt.Sprintf("%s, %s and %s credits", deployment, prices.Prompt, prices.Completion)
}

// pricedBy returns the resources that a command prices.
func pricedBy(c *command.SetPrices) []string {
	names := slices.Collect(maps.Keys(c.Prices))        // Any order: sorted below.
	names = slices.AppendSeq(names, maps.Keys(c.Costs)) // Any order: sorted below.
	slices.Sort(names)
	return slices.Compact(names)
}

// pricesOf returns the prices of resources in credits per hour.
func (s *trail) pricesOf(names []string) string {
	texts := make([]string, 0, len(names))
	for _, name := range names {
		text := "no price"
		if p, source, priced := s.view.PriceOf(name); priced {
			text = fmt.Sprintf("%s (%s)", p.PerHour(), source)
		}
		if known, ok := s.view.prices.Get(name); ok && known.Cost > 0 {
			text += " at a cost of " + known.Cost.PerHour().String()
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// limitsOf returns the limits of a quota; nil for none.
func limitsOf(q *compute.Quota) string {
	if q == nil {
		return "no limits"
	}
	var limits []string
	if q.Denied {
		limits = append(limits, "denied")
	}
	if q.Concurrent > 0 {
		limits = append(limits, fmt.Sprintf("%d executions", q.Concurrent))
	}
	if q.MilliGPU > 0 {
		limits = append(limits, fmt.Sprintf("%d/1000 GPUs", q.MilliGPU))
	}
	if q.Weight > 0 {
		limits = append(limits, fmt.Sprintf("weight %d", q.Weight))
	}
	return strings.Join(limits, ", ")
}

// budgetOf returns the budget of a spender. Its URL may have a secret.
func (s *trail) budgetOf(who spender) settings {
	b, ok := s.view.budgets.Get(who)
	if !ok {
		return settings{shown: "none"}
	}
	text := b.MaxCredits.String() + " credits"
	if b.Monthly {
		text += " a month"
	}
	if b.Enforce {
		text += ", enforced"
	}
	return settings{shown: text, hidden: b.URL}
}

// changed reports whether a command that was accepted changed something. It sets the detail of
// its line where the command replaced settings that are shown.
func (s *trail) changed(cmd command.Command, r command.Result, before earlier, d *auditEntry) bool {
	switch cmd.(type) {
	case command.PutVariables, command.RemoveVariables:
		return r.Count > 0
	}
	if !before.replaces {
		return true
	}
	was := before.settings
	now, _ := s.settingsOf(cmd)
	switch {
	case now.shown == "":
	case was.shown == "" || was.shown == now.shown:
		d.detail = now.shown
	default:
		d.detail = was.shown + " to " + now.shown
	}
	return now != was
}
