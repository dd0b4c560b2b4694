package fsm

import (
	"fmt"
	"slices"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/fsm/command"
	"berth/fsm/format"
)

// maxClockJump is how far one entry may raise the state's clock, so that a
// leader whose clock is wrong cannot expire everything at once.
const maxClockJump = 5 * time.Minute

// applyEntry applies every frame of one entry, and keeps at where it is. An entry
// that cannot be decoded stops the process: a replica that went on without it would
// differ from then on.
func (s *state) applyEntry(index uint64, entry []byte, at *stage) []command.Result {
	s.view.meta.Index = index
	if fault.Planted(fault.MapOrder) {
		return s.applyInMapOrder(entry)
	}
	var results []command.Result
	for len(entry) > 0 {
		*at = stage{frame: at.frame + 1}
		c, rest, err := command.Read(entry)
		if err != nil {
			panic(fmt.Errorf("this version cannot read it: %w", err))
		}
		at.command = c.Name()
		results = append(results, s.decide(c))
		entry = rest
	}
	return results
}

// applyInMapOrder applies the frames of an entry in the order of a map, which
// is another one on each replica, while MapOrder is planted.
func (s *state) applyInMapOrder(entry []byte) []command.Result {
	var results []command.Result
	later := make(map[int]command.Call)
	for len(entry) > 0 {
		c, rest, err := command.Read(entry)
		if err != nil {
			panic(err)
		}
		if len(results) == 0 {
			results = append(results, s.decide(c)) // The preamble, as a rule.
		} else {
			later[len(results)] = c
			results = append(results, command.Result{})
		}
		entry = rest
	}
	for i, c := range later { // Any order: that is the bug.
		results[i] = s.decide(c)
	}
	return results
}

// decide applies one command once: a request that was answered before gets
// that answer.
func (s *state) decide(c command.Call) command.Result {
	if refusal := s.ready(c); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	op, ok := c.Op()
	if !ok {
		return s.applyRecorded(c)
	}
	if first, known := s.view.Recall(op); known {
		return first
	}
	result := s.applyRecorded(c)
	s.remember(op, result)
	return result
}

// applyRecorded applies one command and records it in the audit trails that list it.
func (s *state) applyRecorded(c command.Call) command.Result {
	before := s.trail.before(c.Command)
	result := s.applied[c.Number()](s, c.Command)
	s.trail.record(c.Command, result, before)
	return result
}

// ready refuses commands before Bootstrap and those of an older leader.
func (s *state) ready(c command.Call) *compute.Error {
	term, fenced := c.Term()
	switch {
	case c.BeforeBootstrap():
		return nil
	case !s.view.Bootstrapped():
		return compute.Errorf(compute.CodeUnavailable,
			"the cluster is not set up yet").Named("not_bootstrapped")
	case fenced && term < s.view.meta.Term:
		return compute.Errorf(compute.CodeConflict,
			"a newer leader has taken over").Named("stale_term")
	}
	return nil
}

// setSettings replaces the operator's configuration. Below format 6 that
// includes the billing mode.
func (s *lifecycle) setSettings(c command.SetSettings) command.Result {
	if s.view.Format() >= format.Lab {
		c.Settings.Meter = s.view.meta.Settings.Meter
	}
	s.view.meta.Settings = c.Settings
	return command.Result{}
}

// refuse returns the answer to a command that changes nothing.
func refuse(code compute.Code, detail, format string, args ...any) command.Result {
	return command.Result{Refusal: compute.Errorf(code, format, args...).Named(detail)}
}

// raiseClock moves the state's clock forward, never back.
func (s *lifecycle) raiseClock(c command.Clock) command.Result {
	limit := c.At
	if !s.view.meta.Now.IsZero() {
		limit = s.view.meta.Now.Add(maxClockJump)
	}
	s.view.meta.Now = max(s.view.meta.Now, min(c.At, limit))
	s.view.meta.Term = max(s.view.meta.Term, c.Term)
	return command.Result{}
}

// bootstrap sets the cluster up, once. A repeat by the same node succeeds.
func (s *lifecycle) bootstrap(c command.Bootstrap) command.Result {
	switch {
	case c.ClusterID.IsZero():
		return refuse(compute.CodeInvalid, "no_cluster_id", "a cluster needs an identifier")
	case c.ClusterID == s.view.meta.Cluster:
		return command.Result{Repeat: true}
	case s.view.Bootstrapped():
		return refuse(compute.CodeConflict, "already_bootstrapped",
			"the cluster is set up already")
	}
	if refusal := checkPrices(c.Prices); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	s.view.meta.Cluster = c.ClusterID
	s.view.meta.RootToken = c.RootToken
	s.view.meta.Settings = c.Settings
	s.view.putPrices(c.Prices, func(name string) bool { return slices.Contains(c.Own, name) })
	if c.Signing.ID != "" {
		s.identity.putSigningKey(c.Signing)
	}
	return command.Result{ID: c.ClusterID}
}
