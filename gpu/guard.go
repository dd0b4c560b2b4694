package gpu

import (
	"context"
	"errors"
	"time"
)

// answerTimeout is how long a driver may take to answer, and exitTimeout how
// long it may take once the caller's context has ended.
const (
	answerTimeout = 15 * time.Second
	exitTimeout   = time.Second
)

// errNoAnswer is the error for a driver that hangs.
var errNoAnswer = errors.New("the gpu driver does not answer")

// guard makes calls that may hang, such as to a driver, without hanging itself.
// While a call hangs it starts no other, so that a driver that never returns
// costs at most one goroutine. It must not be used by two goroutines at once.
type guard[T any] struct {
	answer chan T // Gets the result of the pending call; nil when none is pending.
}

// do returns the result of call. If an earlier call was abandoned, it waits for
// that one instead and does not make its own.
func (g *guard[T]) do(ctx context.Context, call func() T) (T, error) {
	if g.answer == nil {
		answer := make(chan T, 1) // Buffered, so that an abandoned call can end.
		go func() { answer <- call() }()
		g.answer = answer
	}
	late := time.NewTimer(answerTimeout)
	defer late.Stop()
	select {
	case v := <-g.answer:
		g.answer = nil
		return v, nil
	case <-late.C:
		return *new(T), errNoAnswer
	case <-ctx.Done():
		late.Reset(exitTimeout)
	}
	select {
	case <-g.answer:
		g.answer = nil
	case <-late.C:
	}
	return *new(T), ctx.Err()
}
