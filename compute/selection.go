package compute

import "time"

// Objective is what a GPU selection optimises.
type Objective uint8

// The objectives. Values are written to disk: append only.
const (
	ObjectiveBalanced Objective = iota // sqrt(t/t_min * c/c_min), ties to the cheaper.
	ObjectiveFastest
	ObjectiveCheapest
)

var objectiveNames = names{"balanced", "fastest", "cheapest"}

// String returns the objective as clients spell it.
func (o Objective) String() string { return objectiveNames.text(uint8(o)) }

// MarshalText returns what String returns.
func (o Objective) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText accepts what String returns.
func (o *Objective) UnmarshalText(text []byte) error {
	v, err := objectiveNames.value("objective", text)
	*o = Objective(v)
	return err
}

// Limits of a GPU selection, agreed as part of the interface.
const (
	MaxRepeats  = 5                  // Runs of one GPU type.
	MaxDeadline = 7 * 24 * time.Hour // From the submit.
)

// Selection is the part of a record that only the parent of a GPU selection
// has.
type Selection struct {
	Objective Objective     `cbor:"1,keyasint,omitempty"`
	GPUTypes  []string      `cbor:"2,keyasint,omitempty"` // Requested; empty for every type that fits.
	Taken     bool          `cbor:"3,keyasint,omitempty"` // Its queue message was taken: the children exist.
	Children  []ExecutionID `cbor:"4,keyasint,omitempty"` // By their GPU types' names, then by repeat.
	Live      int           `cbor:"5,keyasint,omitempty"` // Children that have not ended.
	Repeats   int           `cbor:"6,keyasint,omitempty"` // Runs of each GPU type, one after the other; 0 is 1.
	Deadline  time.Duration `cbor:"7,keyasint,omitempty"` // From the submit; 0 for none.
	Complete  bool          `cbor:"8,keyasint,omitempty"` // Nothing is stopped early: every type runs to its end.
}

// Runs returns how often each GPU type executes the code.
func (s *Selection) Runs() int { return max(s.Repeats, 1) }

// Candidate is one GPU type of a GPU selection with its runs, in order.
type Candidate struct {
	Profile string
	Runs    []CandidateRun
}

// CandidateRun is one run of the code on one GPU type.
type CandidateRun struct {
	Execution ExecutionID
	Status    Status
	Reason    Reason
	Detail    string
	Duration  time.Duration // Run time of the code, once it has ended.
	Credits   Credits       // Its cost.
	Price     Price
	Predicted time.Duration // The least time that a run that was stopped early would have taken.
	Finished  Instant       // When its terminal entry was committed; zero before.
	Requeued  Instant       // When its last attempt ended, if it is queued again; set only in a selection.
}

// ByProfile groups the sub-executions of a GPU selection, sorted by GPU type
// and then by repeat, by GPU type.
func ByProfile(children []*Execution) (groups [][]*Execution) {
	for _, e := range children {
		n := len(groups)
		if n == 0 || groups[n-1][0].Profile != e.Profile {
			groups = append(groups, nil)
			n++
		}
		groups[n-1] = append(groups[n-1], e)
	}
	return groups
}

// CandidateOf returns the runs of one GPU type as input for a verdict.
func CandidateOf(runs []*Execution) Candidate {
	c := Candidate{Profile: runs[0].Profile}
	for _, e := range runs {
		c.Runs = append(c.Runs, CandidateRun{
			Execution: e.ID, Status: e.Status, Reason: e.Reason, Detail: e.Detail,
			Duration: e.Duration, Credits: e.Billed, Price: e.Price, Predicted: e.Predicted,
			Finished: e.FinishedAt,
		})
	}
	return c
}

// Verdict is the result of a GPU selection. Best is an index into the
// candidates in the given order, -1 while there is nothing to recommend.
type Verdict struct {
	Best       int
	Reason     string   // One sentence for people.
	Confidence *float64 // In the recommendation, 0 to 1; nil while there is nothing to compare it with.
	Rows       []CandidateResult
}

// CandidateResult is the result of one candidate.
type CandidateResult struct {
	Status    Status // Completed when one of its runs has completed, once all have ended.
	Reason    Reason
	Completed int           // The number of completed runs.
	Duration  time.Duration // Median of its completed runs; 0 without one.
	Credits   Credits       // Median of its completed runs; 0 without one.
	Pareto    bool          // On the Pareto front: no candidate is as good in time and credits and better in one.
	Score     float64       // The objective's value, lower is better; 0 when no run completed.
}

// CandidateStop stops one run of a GPU selection.
type CandidateStop struct {
	Execution ExecutionID   `cbor:"1,keyasint"`
	Reason    Reason        `cbor:"2,keyasint"` // ReasonNoCapacity, ReasonStoppedEarly or ReasonDeadline.
	Detail    string        `cbor:"3,keyasint,omitempty"`
	Predicted time.Duration `cbor:"4,keyasint,omitempty"` // The least time that it would have taken.
}
