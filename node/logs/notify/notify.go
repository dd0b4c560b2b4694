package notify

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Notifier watches directories. All readers of a directory share one watch. Its
// methods are safe for concurrent use.
type Notifier struct {
	watcher *fsnotify.Watcher

	mu      sync.Mutex
	readers map[string]map[chan struct{}]bool // By directory.
}

// Open returns a Notifier. An error means that the kernel grants no more inotify
// instances.
func Open() (*Notifier, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch files: %w", err)
	}
	n := &Notifier{watcher: watcher, readers: make(map[string]map[chan struct{}]bool)}
	go n.run()
	return n, nil
}

// Close ends all watches.
func (n *Notifier) Close() error {
	if err := n.watcher.Close(); err != nil {
		return fmt.Errorf("end watching files: %w", err)
	}
	return nil
}

// Watch returns a channel that receives once files in dir were written since the
// last time that it received, and a function that ends that. dir must exist.
func (n *Notifier) Watch(dir string) (written <-chan struct{}, stop func(), err error) {
	dir = filepath.Clean(dir)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.readers[dir]) == 0 {
		if err := n.watcher.Add(dir); err != nil {
			return nil, nil, fmt.Errorf("watch %s: %w", dir, err)
		}
		n.readers[dir] = make(map[chan struct{}]bool)
	}
	c := make(chan struct{}, 1)
	n.readers[dir][c] = true
	return c, func() { n.remove(dir, c) }, nil
}

// remove ends the watch of a directory with its last reader.
func (n *Notifier) remove(dir string, c chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.readers[dir][c] {
		return
	}
	delete(n.readers[dir], c)
	if len(n.readers[dir]) == 0 {
		delete(n.readers, dir)
		_ = n.watcher.Remove(dir) // It ended by itself if the directory is gone.
	}
}

// run passes on events until Close.
func (n *Notifier) run() {
	for {
		select {
		case event, ok := <-n.watcher.Events:
			if !ok {
				return
			}
			n.wake(filepath.Dir(event.Name))
		case err, ok := <-n.watcher.Errors:
			if !ok {
				return
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				n.wakeAll()
			}
		}
	}
}

func (n *Notifier) wake(dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wake(n.readers[dir])
}

// wakeAll wakes all readers: the kernel has dropped events.
func (n *Notifier) wakeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, readers := range n.readers {
		wake(readers)
	}
}

func wake(readers map[chan struct{}]bool) {
	for c := range readers {
		select {
		case c <- struct{}{}:
		default: // The reader already has a notification that it has not received.
		}
	}
}
