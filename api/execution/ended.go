package execution

import (
	"slices"

	lru "github.com/hashicorp/golang-lru"

	"berth/compute"
)

// Limits of what is kept of executions that have ended: 32 MiB in all.
const (
	maxEnded      = 512
	maxEndedBytes = 64 << 10 // Larger ones are read each time.
)

// ended is the program and the output of an execution that has ended. They never
// change.
type ended struct {
	program                  *compute.Bundle
	stdout, stderr, combined string
}

// endedCache keeps what was last read. Code is compressed, and output is often on another
// node.
type endedCache struct{ cache *lru.Cache }

func newEndedCache() endedCache {
	cache, err := lru.New(maxEnded)
	if err != nil {
		panic(err) // The size is a constant above 0.
	}
	return endedCache{cache}
}

// get returns the cached program and output of an execution.
func (c endedCache) get(id compute.ExecutionID) (ended, bool) {
	kept, ok := c.cache.Get(id)
	if !ok {
		return ended{}, false
	}
	return kept.(ended), true
}

// put keeps the code and the output of e, if both are final and small. The output of an
// attempt that its node did not report the end of may still be written.
func (c endedCache) put(e *compute.Execution, what ended) {
	reported := e.Status == compute.StatusCompleted || e.Status == compute.StatusFailed
	size := len(what.program.Code) + len(what.stdout) + len(what.stderr) + len(what.combined)
	for _, arg := range slices.Concat(what.program.Args, what.program.Command) {
		size += len(arg)
	}
	if reported && e.Ran && size <= maxEndedBytes {
		c.cache.Add(e.ID, what)
	}
}
