package cluster

import "sync"

// group counts goroutines that outlive the call which started them, so that
// Close can wait for them. What starts after that is on its way out and is
// not waited for.
type group struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// Go calls fn in a goroutine.
func (g *group) Go(fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		go fn()
		return
	}
	g.wg.Go(fn)
}

// wait waits for what was started.
func (g *group) wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}
