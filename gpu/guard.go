package gpu

import (
	"context"
	"errors"
	"time"
)

// patience is how long a driver may take to answer, and farewell how long it
// may once the caller wants to go.
const (
	patience = 15 * time.Second
	farewell = time.Second
)

// errHangs is what is said of a driver that does not answer.
var errHangs = errors.New("the gpu driver does not answer")

// asker calls something that may hang, such as a driver, without hanging with
// it. While a call hangs no other is begun, so that at most one goroutine is
// lost to a driver that never comes back. It is for one caller at a time.
type asker[T any] struct {
	answer chan T // Of the call under way; nil when there is none.
}

// ask returns what call returns. A call that was given up on is picked up by
// the next ask, whose own call is not made then.
func (a *asker[T]) ask(ctx context.Context, call func() T) (T, error) {
	if a.answer == nil {
		answer := make(chan T, 1) // The goroutine ends also when nobody waits.
		go func() { answer <- call() }()
		a.answer = answer
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case v := <-a.answer:
		a.answer = nil
		return v, nil
	case <-late.C:
		return *new(T), errHangs
	case <-ctx.Done():
		late.Reset(farewell)
	}
	select {
	case <-a.answer:
		a.answer = nil
	case <-late.C:
	}
	return *new(T), ctx.Err()
}
