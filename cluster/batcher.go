package cluster

import "sync"

// Limits of a lane.
const (
	batcherSends = 4 // On their way at a time; what comes meanwhile is batched.
	batcherQueue = 16_384
	batcherBytes = 64 << 20
	batchBytes   = maxEntry - 4<<10 // Leaves room for the preamble.
	batchFrames  = maxFrames - 1    // As well.
)

// lane batches proposals: the first goes at once, and while laneBatches
// batches are on their way the others gather. An idle lane adds no latency, a
// busy one costs one entry for many frames.
type batcher struct {
	spawn func(func())
	send  func(batch []*proposal) // Finishes every proposal of the batch.

	mu     sync.Mutex
	queue  []*proposal
	bytes  int
	active int // Senders.
}

// add queues a proposal; it reports false when the lane is full.
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

// next takes a batch from the queue. It returns nil, and counts the caller
// out, when there is none.
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
		if len(batch) == batchFrames || size+len(p.frame) > batchBytes {
			break
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
