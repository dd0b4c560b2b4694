package command

import "context"

// Proposer puts bytes into the replicated log. It returns the state's answer and
// its Raft index.
type Proposer interface {
	Propose(ctx context.Context, data []byte) (result []byte, index uint64, err error)
}

// Propose returns the state's decision about cmd and its Raft index. A refusal comes
// back as the error, with its code.
func Propose(ctx context.Context, p Proposer, cmd Command) (Result, uint64, error) {
	frame, err := Encode(cmd)
	if err != nil {
		return Result{}, 0, err
	}
	data, index, err := p.Propose(ctx, frame)
	if err != nil {
		return Result{}, 0, err
	}
	result, err := DecodeResult(data)
	if err != nil {
		return Result{}, 0, err
	}
	if result.Refusal != nil {
		return result, index, result.Refusal
	}
	return result, index, nil
}
