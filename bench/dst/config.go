package dst

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config configures one simulation. The same Config gives the same history.
type Config struct {
	Seed     uint64
	Duration time.Duration // Virtual time with faults; healTime follows.
	Nodes    int           // At least three: the first three hold a replica.
	Bug      Bug           // The planted bug.
}

// Limits of a Config.
const (
	minNodes    = 3
	maxNodes    = 64
	maxDuration = 1000 * time.Hour
)

// validate returns an error that lists the invalid fields of c.
func (c Config) validate() error {
	var errs []error
	if c.Nodes < minNodes || c.Nodes > maxNodes {
		errs = append(errs, fmt.Errorf("%d nodes: a simulation has %d to %d", c.Nodes, minNodes, maxNodes))
	}
	if c.Duration <= 0 || c.Duration > maxDuration {
		errs = append(errs, fmt.Errorf("a duration of %v: it is above 0 and at most %v", c.Duration, maxDuration))
	}
	if _, known := bugNames[c.Bug]; !known {
		errs = append(errs, fmt.Errorf("there is no bug %d", c.Bug))
	}
	return errors.Join(errs...)
}

// Bug is a bug planted into the model to check that an invariant finds it.
type Bug uint8

// Bugs of the model.
const (
	BugNone             Bug = iota
	BugForgottenOp          // A client repeats a request under a new op.
	BugEarlyAnswer          // The leader answers before an entry is committed.
	BugSkippedEntry         // A replica that restarts skips the first entry after its snapshot.
	BugStaleTerm            // A decision of an older leader is proposed under the new term.
	BugDoublePost           // A grant is posted again under another op.
	BugUnsyncedStarting     // Code starts before the journal is synced.
	BugNoDisconnectKill     // A supervisor never kills its code after losing contact.
	BugForgottenOutcome     // A node drops an outcome that was not accepted at once.
	BugHastyLoss            // The leader gives attempts up before their supervisors do.
	BugUncheckedStart       // Code starts without a check for stops during its preparation.
	BugLongLease            // Attempts that may be rescheduled get the longer lease of those that may not.
	BugNoBrake              // The leader releases the circuit breaker to give up nodes that vanished at once.
	BugEarlyJudge           // The leader gives up attempts before it has recorded the other silent nodes.
	BugUnheardUp            // A new leader assumes that it has heard every node.
)

// bugNames are the bugs' names in commands.
var bugNames = map[Bug]string{ //nolint:gochecknoglobals // Immutable.
	BugNone: "none", BugForgottenOp: "forgotten-op", BugEarlyAnswer: "early-answer",
	BugSkippedEntry: "skipped-entry", BugStaleTerm: "stale-term", BugDoublePost: "double-post",
	BugUnsyncedStarting: "unsynced-starting", BugNoDisconnectKill: "no-disconnect-kill",
	BugForgottenOutcome: "forgotten-outcome", BugHastyLoss: "hasty-loss", BugUncheckedStart: "unchecked-start",
	BugLongLease: "long-lease", BugNoBrake: "no-brake", BugEarlyJudge: "early-judge", BugUnheardUp: "unheard-up",
}

// Bugs returns all bugs except BugNone.
func Bugs() []Bug {
	out := slices.Sorted(maps.Keys(bugNames))
	return out[1:]
}

// ParseBug returns the bug with the name that String returns.
func ParseBug(text string) (Bug, error) {
	names := make([]string, 0, len(bugNames))
	for _, b := range slices.Sorted(maps.Keys(bugNames)) {
		if bugNames[b] == text {
			return b, nil
		}
		names = append(names, bugNames[b])
	}
	return BugNone, fmt.Errorf("there is no bug %q; there are %s", text, strings.Join(names, ", "))
}

// String returns the bug's name in commands.
func (b Bug) String() string { return bugNames[b] }

// Report counts the events of one simulation.
type Report struct {
	Seed           uint64  `json:"seed"`
	Events         uint64  `json:"events"`
	VirtualSeconds float64 `json:"virtual_s"`
	Entries        uint64  `json:"entries"`
	Terms          uint64  `json:"terms"`
	Submits        int     `json:"submits"`    // Acknowledged submits.
	Executions     int     `json:"executions"` // Ended executions.
	Starts         int     `json:"starts"`     // Starts of code.
	Lost           int     `json:"lost"`       // Attempts that the leader gave up.
	Requeued       int     `json:"requeued"`   // Attempts that ended by report of their node, and another followed.
	Retried        int     `json:"retried"`    // Attempts of ended executions, after a system failure.
	Unstarted      int     `json:"unstarted"`  // Attempts of ended executions whose code never started.
	Braked         int     `json:"braked"`     // How often too many nodes vanished at once.
	Crashes        int     `json:"crashes"`    // Crashes of processes, machines and supervisors.
	Partitions     int     `json:"partitions"`
	Elections      int     `json:"elections"`
	Restores       int     `json:"restores"`    // Restores of replicas from snapshots.
	Dropped        int     `json:"dropped"`     // Lost entries and messages.
	Duplicated     int     `json:"duplicated"`  // Duplicated messages.
	StaleTerms     int     `json:"stale_terms"` // Commands of older leaders that the state refused.
	StaleReports   int     `json:"stale_words"` // Reports of ended attempts that the state refused.
	Repeats        int     `json:"repeats"`     // Repeated requests that got their first answer.
	Checks         int     `json:"checks"`      // Checks of the whole state.
	Compared       int     `json:"compared"`    // Comparisons of replicas' hashes.
	State          string  `json:"state"`       // Final hash of the state.
}

// Add adds the counts of another history; r keeps its seed and state.
func (r *Report) Add(other Report) {
	r.Seed, r.State = other.Seed, other.State
	r.Events += other.Events
	r.VirtualSeconds += other.VirtualSeconds
	r.Entries += other.Entries
	r.Terms += other.Terms
	sums := func(r *Report) []*int {
		return []*int{
			&r.Submits, &r.Executions, &r.Starts, &r.Lost, &r.Requeued, &r.Retried, &r.Unstarted, &r.Braked,
			&r.Crashes, &r.Partitions, &r.Elections, &r.Restores, &r.Dropped, &r.Duplicated,
			&r.StaleTerms, &r.StaleReports, &r.Repeats, &r.Checks, &r.Compared,
		}
	}
	mine, its := sums(r), sums(&other)
	for i := range mine {
		*mine[i] += *its[i]
	}
}

// Violation is a violated invariant. Its seed replays it.
type Violation struct { //nolint:errname // It is a finding, not an error.
	Seed uint64
	At   time.Duration // Virtual time.
	What string
}

// Error returns the violation, its time and its seed.
func (v *Violation) Error() string {
	return fmt.Sprintf("seed %d, at %v: %s", v.Seed, v.At.Round(time.Microsecond), v.What)
}
