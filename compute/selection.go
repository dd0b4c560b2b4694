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

// Selection is what the parent of a GPU selection carries.
type Selection struct {
	Objective Objective     `cbor:"1,keyasint,omitempty"`
	GPUTypes  []string      `cbor:"2,keyasint,omitempty"` // Asked for; empty for every type that fits.
	Taken     bool          `cbor:"3,keyasint,omitempty"` // Its queue message was taken: the children exist.
	Children  []ExecutionID `cbor:"4,keyasint,omitempty"` // In the order of their GPU types' names.
	Live      int           `cbor:"5,keyasint,omitempty"` // Children that have not ended.
}

// Candidate is one GPU type's run of a GPU selection.
type Candidate struct {
	Execution ExecutionID
	Profile   string
	Status    Status
	Reason    Reason
	Node      string // Name; "" before it was placed.
	Duration  time.Duration
	Credits   Credits
	Ran       bool
	ExitCode  int
	Usage     Usage
}

// Verdict is what a GPU selection found. Best is an index into the candidates
// in the order they were given, -1 while there is nothing to recommend.
type Verdict struct {
	Best   int
	Reason string    // One sentence for people.
	Pareto []bool    // Per candidate: no other one is as good in time and credits and better in one.
	Scores []float64 // Per candidate: the objective's value, lower is better; 0 when it did not complete.
}
