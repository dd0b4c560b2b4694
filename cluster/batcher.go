package cluster

import "sync"

// Limits of a batcher.
const (
	batcherSends = 4 // Batches in flight. Each but the first waits until it is full:
	fullFrames   = 64
	fullBytes    = 256 << 10
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
	active int // Senders.
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
	if l.active < batcherSends && l.due(l.active) {
		l.active++
		l.spawn(l.drain)
	}
	return taken
}

// due reports whether the queue is to be sent while so many batches are in flight.
func (l *batcher) due(others int) bool {
	if others == 0 {
		return len(l.queue) > 0
	}
	return len(l.queue) >= fullFrames || l.bytes >= fullBytes
}

// drain sends batches until none is due.
func (l *batcher) drain() {
	for {
		batch := l.next()
		if batch == nil {
			return
		}
		if len(batch) > 0 {
			l.send(batch)
		}
	}
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
	return batch
}
