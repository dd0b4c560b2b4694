package cluster

import "sync"

// Limits of a batcher.
const (
	batcherSends = 4 // Batches in flight; later proposals are batched meanwhile.
	batcherQueue = 16_384
	batcherBytes = 64 << 20
	batchBytes   = maxEntry - 4<<10 // Leaves space for the preamble.
	batchFrames  = maxFrames - 1    // Likewise.
)

// batcher batches proposals: it sends the first one at once, and gathers others
// while batcherSends batches are in flight. An idle batcher adds no latency, and
// a busy one puts many frames into one entry.
type batcher struct {
	spawn func(func())
	send  func(batch []*proposal) // Finishes every proposal of the batch.

	mu     sync.Mutex
	queue  []*proposal
	bytes  int
	active int // Senders.
}

// add queues a proposal; it reports false when the batcher is full.
func (l *batcher) add(p *proposal) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= batcherQueue || l.bytes+len(p.frame) > batcherBytes {
		return false
	}
	l.queue = append(l.queue, p)
	l.bytes += len(p.frame)
	if l.active < batcherSends {
		l.active++
		l.spawn(l.drain)
	}
	return true
}

// drain sends batches until the queue is empty.
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
// when the queue is empty.
func (l *batcher) next() []*proposal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
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
