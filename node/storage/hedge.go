package storage

import (
	"context"
	"errors"
	"time"

	"berth/compute"
)

// answer is the answer of one node.
type answer struct {
	node compute.NodeID
	data []byte
	err  error
}

// hedged runs an operation on wanted of the nodes, preferring the first ones. It
// asks the next node whenever one fails or all are slow. It returns the answers
// of the nodes that succeeded, wanted of them unless too few could or ctx
// ended, those of the nodes that failed, and how many nodes have not answered yet.
func hedged(
	ctx context.Context, nodes []Node, wanted int, slow time.Duration,
	do func(context.Context, compute.NodeID) ([]byte, error),
) (done, failed []answer, late int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(nodes)) // The buffer takes all answers: a late one does not wait for a reader.
	asked := 0
	ask := func() {
		if asked == len(nodes) {
			return
		}
		node := nodes[asked].ID
		asked++
		go func() {
			data, err := do(ctx, node)
			answers <- answer{node, data, err}
		}()
	}
	for range wanted {
		ask()
	}
	hedge := time.NewTicker(slow)
	defer hedge.Stop()
	for len(done) < wanted && len(done)+len(failed) < asked {
		select {
		case a := <-answers:
			if a.err == nil {
				done = append(done, a)
				continue
			}
			failed = append(failed, a)
			ask()
		case <-hedge.C:
			ask()
		case <-ctx.Done():
			return done, failed, asked - len(done) - len(failed)
		}
	}
	return done, failed, asked - len(done) - len(failed)
}

// joined returns the errors of failed nodes as one.
func joined(failed []answer) error {
	errs := make([]error, 0, len(failed))
	for _, a := range failed {
		errs = append(errs, a.err)
	}
	return errors.Join(errs...)
}
