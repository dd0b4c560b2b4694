package disk

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// spacePoll is how often a write that waits for free space is retried.
const spacePoll = 250 * time.Millisecond

// spaceWaiter retries writes that found no free space.
type spaceWaiter struct {
	free    atomic.Pointer[func() bool]
	starved atomic.Bool
}

// once calls write, and once more when it found no space and some was freed.
func (r *spaceWaiter) once(write func() error) error {
	err := write()
	if free := r.free.Load(); NoSpace(err) && free != nil && (*free)() {
		err = write()
	}
	return err
}

// wait calls write until it finds space. If nothing frees any, as before raft
// runs, it calls write once.
func (r *spaceWaiter) wait(write func() error) error {
	if r.free.Load() == nil {
		return write()
	}
	r.starved.Store(true)
	defer r.starved.Store(false)
	ticker := time.NewTicker(spacePoll)
	defer ticker.Stop()
	for {
		if err := r.once(write); !NoSpace(err) {
			return err
		}
		<-ticker.C
	}
}

// OnNoSpace makes the store call free when a write finds no space, and retry
// once if free reports that it freed some. OnNoSpace is safe for concurrent
// use, and free must be too.
func (s *Log) OnNoSpace(free func() bool) { s.space.free.Store(&free) }

// Starved reports whether raft waits for free space to store its term. A
// failure to store it would end the process.
func (s *Log) Starved() bool { return s.space.starved.Load() }

// probeFile is the file that Probe writes.
const probeFile = "probe"

// Probe durably writes a few bytes beside the log, to check whether the disk
// hangs. Calls must not overlap.
func (s *Log) Probe() error {
	f, err := os.OpenFile(s.probe, os.O_CREATE|os.O_WRONLY, fileMode)
	if err == nil {
		_, err = f.WriteAt([]byte("probe\n"), 0)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		err = fmt.Errorf("probe the disk: %w", err)
		s.failed(err)
	}
	return err
}
