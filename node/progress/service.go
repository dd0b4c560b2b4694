package progress

import (
	"context"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
)

// methodProgress is the call by which the leader asks a node how far runs of
// GPU selections are.
const methodProgress = "race.progress"

// Limits of one call.
const (
	maxPoints = 32  // Points of one run.
	MaxRuns   = 512 // That one call asks for.
)

// Run asks for, and answers with, how far one run is.
type Run struct {
	Execution compute.ExecutionID     `cbor:"1,keyasint"`
	Elapsed   time.Duration           `cbor:"2,keyasint,omitempty"`
	Points    []compute.ProgressPoint `cbor:"3,keyasint,omitempty"`

	// The record of the run as the leader has it, for a node without a replica.
	Known *Known `cbor:"4,keyasint,omitempty"`
}

// Known has the fields of a run's record that are needed to measure its
// progress.
type Known struct {
	Epoch     uint64          `cbor:"1,keyasint"`
	Status    compute.Status  `cbor:"2,keyasint"`
	StartedAt compute.Instant `cbor:"3,keyasint"`
	Duration  time.Duration   `cbor:"4,keyasint,omitempty"`
}

// Service answers, and asks other nodes, how far runs are.
type Service struct {
	Cluster *cluster.Cluster
	Reader  *Reader
	State   func() *fsm.View // nil on a node without a replica.
}

// Handle registers the method by which others ask.
func (s *Service) Handle() { s.Cluster.Handle(methodProgress, cluster.Servers, s.serve) }

// Ask asks one node how far runs are.
func (s *Service) Ask(ctx context.Context, node compute.NodeID, runs []Run) ([]Run, error) {
	if node == s.Cluster.ID() {
		return s.Reader.of(ctx, s.State().AnyExecution, runs), nil
	}
	request, err := cbor.Marshal(runs)
	if err != nil {
		return nil, err
	}
	data, err := s.Cluster.Call(ctx, node, methodProgress, request)
	if err != nil {
		return nil, err
	}
	var answer []Run
	return answer, cbor.Unmarshal(data, &answer)
}

// serve answers another node's methodProgress.
func (s *Service) serve(ctx context.Context, _ rpc.Peer, request []byte) ([]byte, error) {
	var runs []Run
	if err := cbor.Unmarshal(request, &runs); err != nil || len(runs) > MaxRuns {
		return nil, compute.Errorf(compute.CodeInvalid, "Not a list of executions.")
	}
	lookup := knownRuns(runs)
	if s.State != nil {
		lookup = s.State().AnyExecution
	}
	return cbor.Marshal(s.Reader.of(ctx, lookup, runs))
}

// knownRuns returns a lookup of runs as the request of the leader describes them.
func knownRuns(runs []Run) func(compute.ExecutionID) (*compute.Execution, bool) {
	known := make(map[compute.ExecutionID]*compute.Execution, len(runs))
	for _, run := range runs {
		if k := run.Known; k != nil {
			known[run.Execution] = &compute.Execution{
				ID: run.Execution, Epoch: k.Epoch, Status: k.Status, StartedAt: k.StartedAt, Duration: k.Duration,
			}
		}
	}
	return func(id compute.ExecutionID) (*compute.Execution, bool) {
		e, ok := known[id]
		return e, ok
	}
}
