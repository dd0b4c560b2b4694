package cluster

import (
	"sync"
	"time"
)

// Limits of a batcher.
const (
	batcherSends = 4 // Batches in flight. All but the first are worth an entry of their own:
	worthFrames  = 64
	worthBytes   = 256 << 10
	stuckAfter   = time.Second // A batch that takes longer holds no others back.
	batcherQueue = 16_384
	batcherBytes = 64 << 20
	batchBytes   = maxEntry - 4<<10 // Leaves space for the preamble.
	batchFrames  = maxFrames - 1    // Likewise.
)

// batcher batches proposals: it sends the first one at once, and gathers others while a
// batch is in flight, until it returns or they are worth an entry of their own. An entry
// takes milliseconds of the three servers' processors, a frame in it a tenth of one. An
// idle batcher adds no latency.
type batcher struct {
	spawn func(func())
	send  func(batch []*proposal) // Finishes every proposal of the batch.

	mu     sync.Mutex
	queue  []*proposal
	bytes  int
	active int // Senders,
	stuck  int // of which so many are stuck.
}

// add queues proposals, which then share a batch where one has space for them. It
// returns how many it took: fewer when the batcher is full.
func (l *batcher) add(some ...*proposal) (taken int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range some {
		if len(l.queue) >= batcherQueue || l.bytes+len(p.frame) > batcherBytes {
			break
		}
		l.queue = append(l.queue, p)
		l.bytes += len(p.frame)
		taken++
	}
	l.start()
	return taken
}

// start adds a sender if the queue is worth one. The caller holds mu.
func (l *batcher) start() {
	if l.active < batcherSends && l.due(l.active) {
		l.active++
		l.spawn(l.drain)
	}
}

// due reports whether a batch is to be sent beside other senders. The caller holds mu.
func (l *batcher) due(others int) bool {
	if others <= l.stuck {
		return len(l.queue) > 0
	}
	return len(l.queue) >= worthFrames || l.bytes >= worthBytes
}

// drain sends batches until none is due.
func (l *batcher) drain() {
	for {
		batch := l.next()
		if batch == nil {
			return
		}
		if len(batch) > 0 {
			stuck := time.AfterFunc(stuckAfter, func() { l.count(1) })
			l.send(batch)
			if !stuck.Stop() {
				l.count(-1)
			}
		}
	}
}

// count adds to the senders that are stuck.
func (l *batcher) count(stuck int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck += stuck
	l.start()
}

// next takes a batch from the queue. It returns nil and deregisters the sender
// when none is due.
func (l *batcher) next() []*proposal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.due(l.active - 1) {
		l.active--
		return nil
	}
	batch := make([]*proposal, 0, min(len(l.queue), batchFrames))
	size, used := 0, 0
	for _, p := range l.queue {
		if len(batch) == batchFrames || used > 0 && size+len(p.frame) > batchBytes {
			break // The first one always goes, so that no sender spins.
		}
		used++
		l.bytes -= len(p.frame)
		if p.take() {
			batch = append(batch, p)
			size += len(p.frame)
		}
	}
	clear(l.queue[:used])
	l.queue = l.queue[used:]
	l.start()
	return batch
}
