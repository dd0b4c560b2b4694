package docker

import "net/netip"

// Deny replaces the addresses to which pulls do not connect.
func (e *Engine) Deny(prefixes ...netip.Prefix) { e.guard.deny = prefixes }

// OnDisk returns what the images that were pulled take on the disk.
func (e *Engine) OnDisk() int64 {
	e.images.mu.Lock()
	defer e.images.mu.Unlock()
	return onDisk(e.images.byRef)
}
