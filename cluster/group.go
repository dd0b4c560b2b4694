package cluster

import "sync"

// group counts goroutines that outlive the call that started them, so that
// Close can wait for them. It does not wait for those started after that.
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

// wait waits for the goroutines that were started before it.
func (g *group) wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}
