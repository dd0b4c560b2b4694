//go:build long

package dst_test

import (
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"berth/bench/dst"
	"berth/bench/usage"
)

// bugHistories is the number of histories within which a bug of the model must
// show.
const bugHistories = 100

// raced reports whether the race detector is on.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// TestBugsAreFound plants each bug of the model. With seeds counted up from a
// fresh one, an invariant finds the bug within a minute of processor time, and
// the same seed finds it again. The race detector is slow and gets more time.
// Package fault does the same with the bugs planted into the program.
func TestBugsAreFound(t *testing.T) {
	limit := time.Minute
	if raced() {
		limit *= 8
	}
	first, histories := *seedFlag, *historiesFlag
	if first == 0 {
		first, histories = rand.Uint64()>>1+1, bugHistories // Leaves seeds above it.
	}
	t.Logf("from seed %d on", first)
	for _, bug := range dst.Bugs() {
		t.Run(bug.String(), func(t *testing.T) {
			began, tried := usage.CPU(), 0
			for ; tried < histories && usage.CPU()-began < limit; tried++ {
				c := config(first + uint64(tried))
				c.Bug = bug
				_, err := dst.Run(t.Context(), c)
				found, ok := errors.AsType[*dst.Violation](err)
				if !ok && err != nil {
					t.Fatal(err)
				}
				if !ok {
					continue
				}
				t.Logf("found after %v: %v", usage.CPU()-began, found)
				_, err = dst.Run(t.Context(), c)
				if again, ok := errors.AsType[*dst.Violation](err); !ok || *again != *found {
					t.Errorf("the seed shows\n%v and then\n%v", found, err)
				}
				return
			}
			t.Errorf("not found in %d histories, within %v\nrepeat them with: "+
				"go test ./bench/dst -run TestBugsAreFound/%v -dst.seed %d -dst.histories %d",
				tried, usage.CPU()-began, bug, first, tried)
		})
	}
}
