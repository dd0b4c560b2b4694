package command

import (
	"crypto/sha256"

	"berth/compute"
	"berth/fsm/format"
	"berth/fsm/store"
)

type (
	// CommitPlan carries the scheduler's plan. Each assignment is checked
	// again. An execution that no longer fits stays queued.
	CommitPlan struct {
		Term      uint64       `cbor:"1,keyasint"`
		ViewIndex uint64       `cbor:"2,keyasint"`
		Plan      compute.Plan `cbor:"3,keyasint"`
	}

	// StartAttempt is the report of a node that the user's process started.
	StartAttempt struct {
		Node  compute.NodeID       `cbor:"1,keyasint"`
		Start compute.AttemptStart `cbor:"2,keyasint"`
	}

	// FinishAttempt is the report of a node on how an attempt ended: the terminal
	// status, the charge, the freed GPUs and the callbacks in one entry.
	FinishAttempt struct {
		Node    compute.NodeID  `cbor:"1,keyasint"`
		Outcome compute.Outcome `cbor:"2,keyasint"`
	}

	// LoseAttempts ends the attempts of a node that stayed away for longer
	// than their executions' grace, as system failures.
	LoseAttempts struct {
		Term     uint64         `cbor:"1,keyasint"`
		Node     compute.NodeID `cbor:"2,keyasint"`
		Attempts []AttemptRef   `cbor:"3,keyasint"`
	}

	// AttemptRef names one attempt.
	AttemptRef struct {
		Execution compute.ExecutionID `cbor:"1,keyasint"`
		Epoch     uint64              `cbor:"2,keyasint"`
	}
)

// PlansOf returns the plans in the data of one entry, in order.
func PlansOf(entry []byte) ([]CommitPlan, error) {
	var plans []CommitPlan
	for len(entry) > 0 {
		cmd, rest, err := Decode(entry)
		if err != nil {
			return nil, err
		}
		if plan, ok := cmd.(CommitPlan); ok {
			plans = append(plans, plan)
		}
		entry = rest
	}
	return plans, nil
}

// HashPlan returns the SHA-256 of a plan's encoding.
func HashPlan(plan compute.Plan) compute.Hash { return sha256.Sum256(store.MustEncode(&plan)) }

// attemptRows returns the rows of commands about plans and attempts.
func attemptRows() []*row {
	return []*row{
		payload[CommitPlan]{
			number: 21, since: format.First,
			term: func(c CommitPlan) uint64 { return c.Term },
		}.row(),
		payload[StartAttempt]{
			number: 22, since: format.First, onFullDisk: true,
		}.row(),
		payload[FinishAttempt]{
			number: 23, since: format.First, onFullDisk: true,
			uses: func(c FinishAttempt) uint64 {
				return max(formatIf(c.Outcome.Reason == compute.ReasonPackages || c.Outcome.Outputs != nil, format.Lab),
					formatIf(c.Outcome.Reason == compute.ReasonNotReady, format.Services),
					formatIf(c.Outcome.Reason == compute.ReasonImage || c.Outcome.Digest != "" || c.Outcome.Series != nil,
						format.Containers))
			},
		}.row(),
		payload[LoseAttempts]{
			number: 24, since: format.First, onFullDisk: true,
			term: func(c LoseAttempts) uint64 { return c.Term },
		}.row(),
	}
}
