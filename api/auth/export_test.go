package auth

// MaxWaiting is how many callers may wait while all turns are taken.
const MaxWaiting = maxWaiting

// Occupy takes all turns to hash, until release is called.
func (p *Passwords) Occupy() (release func()) {
	for range hashesAtOnce {
		p.slots <- struct{}{}
	}
	return func() {
		for range hashesAtOnce {
			<-p.slots
		}
	}
}

// MaxThrottled is how many keys a Throttle remembers.
const MaxThrottled = maxThrottled

// Remembered returns how many keys t remembers.
func (t *Throttle) Remembered() int { return t.recent.Len() }
