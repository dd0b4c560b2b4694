package charge

import (
	"time"

	"berth/compute"
)

// Rule says whether the use of an execution is charged. The first rule that
// applies to an execution counts.
type Rule struct {
	Case    string // The executions that it applies to, for people.
	Charge  string // The amount, for people.
	applies func(*compute.Execution) bool
	charge  func(*compute.Execution) (compute.Credits, string)
}

// Rules returns the rules of the charge when an execution ends. The ledger has the
// text of the rule that applied.
func Rules() []Rule {
	return []Rule{
		{
			Case: "A GPU selection or a service as a whole", Charge: "nothing: each of its executions is charged by itself",
			applies: func(e *compute.Execution) bool { return e.Kind.IsParent() },
			charge:  free(func(*compute.Execution) string { return "no sub-execution was created" }),
		},
		{
			Case: "`system_failure`: Berth, a node or a GPU failed", Charge: "nothing, also for what ran before",
			applies: func(e *compute.Execution) bool { return e.Status == compute.StatusSystemFailure },
			charge:  free(func(e *compute.Execution) string { return "system failure, " + e.Reason.String() }),
		},
		{
			Case:    "It was preempted for work of its own organization",
			Charge:  "the time that its code ran before and after",
			applies: func(e *compute.Execution) bool { return e.Owed > 0 },
			charge: func(e *compute.Execution) (compute.Credits, string) {
				return e.Price.Charge(e.Owed + max(e.Duration, 0)),
					"code ran " + millis(e.Duration) + ", and " + millis(e.Owed) + " before it was preempted"
			},
		},
		{
			Case:    "Its code never ran: it was queued, pulled an image or installed packages, and ended",
			Charge:  "nothing",
			applies: func(e *compute.Execution) bool { return !e.Ran || e.Duration <= 0 },
			charge:  free(func(*compute.Execution) string { return "the code never ran" }),
		},
		{
			Case:    "Any other end: `completed`, `failed` by its code, a time limit or memory, `aborted`, `cancelled`",
			Charge:  "the time that its code ran, by the millisecond of wall clock, at the price of its submit",
			applies: func(*compute.Execution) bool { return true },
			charge: func(e *compute.Execution) (compute.Credits, string) {
				return e.Price.Charge(e.Duration), "code ran " + millis(e.Duration)
			},
		},
	}
}

// FreeAttempts returns which attempts of an execution that is not over are not charged.
// The ledger has the reason of each.
func FreeAttempts() []Rule {
	return []Rule{
		{Case: "An attempt that a system failure ended, before its retry", Charge: "nothing"},
		{Case: "An attempt that was moved because its node is drained", Charge: "nothing"},
		{Case: "An attempt that was preempted for another organization's work", Charge: "nothing"},
	}
}

// free returns the charge of a rule by which nothing is charged, for a reason.
func free(why func(*compute.Execution) string) func(*compute.Execution) (compute.Credits, string) {
	return func(e *compute.Execution) (compute.Credits, string) { return 0, "free: " + why(e) }
}

func millis(d time.Duration) string { return max(d, 0).Truncate(time.Millisecond).String() }

// For returns the charge for e, and the reason for it.
func For(e *compute.Execution) (compute.Credits, string) {
	for _, rule := range Rules() {
		if rule.applies(e) {
			return rule.charge(e)
		}
	}
	return 0, "" // The last rule applies to all.
}
