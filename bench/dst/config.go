package dst

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config says what one simulation does. The same Config gives the same history.
type Config struct {
	Seed     uint64
	Duration time.Duration // Virtual time with faults; time to heal follows.
	Nodes    int           // At least three: the first three hold a replica.
	Bug      Bug           // What is wrong on purpose.
}

// Limits of a Config.
const (
	minNodes    = 3
	maxNodes    = 64
	maxDuration = 1000 * time.Hour
)

// validate returns what is wrong with c.
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

// Bug is a mistake that is planted into the model to see that an invariant
// finds it.
type Bug uint8

// The bugs.
const (
	BugNone             Bug = iota
	BugForgottenOp          // A client repeats a request under a new name.
	BugEarlyAnswer          // The leader answers before an entry is committed.
	BugSkippedEntry         // A replica that starts again skips the first entry behind its snapshot.
	BugStaleTerm            // What an older leader decided is proposed under the new one's term.
	BugDoublePost           // A grant is posted once more under another name.
	BugUnsyncedStarting     // Code is started before the journal is on the disk.
	BugNoDisconnectKill     // A supervisor never gives its code up.
	BugForgottenOutcome     // A node forgets an outcome that was not taken at once.
	BugHastyLoss            // The leader gives attempts up before their supervisors do.
	BugUncheckedStart       // Code is started whatever came while it was prepared.
	BugLongLease            // What may start elsewhere goes on for as long as what may not.
	BugNoBrake              // The leader lets the brake go to give up nodes that vanished at once.
	BugEarlyJudge           // The leader gives up attempts before it has recorded who else is silent.
	BugUnheardUp            // A new leader takes every node for one that it has heard.
)

// bugNames are the bugs as commands spell them.
var bugNames = map[Bug]string{ //nolint:gochecknoglobals // Immutable.
	BugNone: "none", BugForgottenOp: "forgotten-op", BugEarlyAnswer: "early-answer",
	BugSkippedEntry: "skipped-entry", BugStaleTerm: "stale-term", BugDoublePost: "double-post",
	BugUnsyncedStarting: "unsynced-starting", BugNoDisconnectKill: "no-disconnect-kill",
	BugForgottenOutcome: "forgotten-outcome", BugHastyLoss: "hasty-loss", BugUncheckedStart: "unchecked-start",
	BugLongLease: "long-lease", BugNoBrake: "no-brake", BugEarlyJudge: "early-judge", BugUnheardUp: "unheard-up",
}

// Bugs returns all bugs, BugNone not among them.
func Bugs() []Bug {
	out := slices.Sorted(maps.Keys(bugNames))
	return out[1:]
}

// ParseBug returns the bug that String spells.
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

// String returns the bug as commands spell it.
func (b Bug) String() string { return bugNames[b] }

// Report is what happened in one simulation.
type Report struct {
	Seed           uint64  `json:"seed"`
	Events         uint64  `json:"events"`
	VirtualSeconds float64 `json:"virtual_s"`
	Entries        uint64  `json:"entries"`
	Terms          uint64  `json:"terms"`
	Submits        int     `json:"submits"`    // Acknowledged.
	Executions     int     `json:"executions"` // That ended.
	Starts         int     `json:"starts"`     // Of code.
	Lost           int     `json:"lost"`       // Attempts that the leader gave up.
	Requeued       int     `json:"requeued"`   // Attempts after whose end, by their node's word, another one followed.
	Retried        int     `json:"retried"`    // Attempts of executions that ended, after a failure of the system.
	Unstarted      int     `json:"unstarted"`  // Attempts of executions that ended, whose code never started.
	Braked         int     `json:"braked"`     // Times that too many nodes vanished at once.
	Crashes        int     `json:"crashes"`    // Of processes, machines and supervisors.
	Partitions     int     `json:"partitions"`
	Elections      int     `json:"elections"`
	Restores       int     `json:"restores"`    // Of replicas from snapshots.
	Dropped        int     `json:"dropped"`     // Entries and messages that never arrived.
	Duplicated     int     `json:"duplicated"`  // Messages.
	StaleTerms     int     `json:"stale_terms"` // Commands of older leaders that the state refused.
	StaleWords     int     `json:"stale_words"` // Words about ended attempts that the state refused.
	Repeats        int     `json:"repeats"`     // Requests that got their first answer again.
	Checks         int     `json:"checks"`      // Of the whole state.
	Compared       int     `json:"compared"`    // Hashes of replicas.
	State          string  `json:"state"`       // Hash of the state at the end.
}

// Add adds the counts of another history; its seed and state are kept.
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
			&r.StaleTerms, &r.StaleWords, &r.Repeats, &r.Checks, &r.Compared,
		}
	}
	mine, its := sums(r), sums(&other)
	for i := range mine {
		*mine[i] += *its[i]
	}
}

// Violation is an invariant that did not hold. Its seed replays it.
type Violation struct { //nolint:errname // It is what was found, not what failed.
	Seed uint64
	At   time.Duration // Virtual time.
	What string
}

// Error returns what was violated, when, and the seed.
func (v *Violation) Error() string {
	return fmt.Sprintf("seed %d, at %v: %s", v.Seed, v.At.Round(time.Microsecond), v.What)
}
