package auth

import "context"

// Callers that hash or wait for their turn, in all and of one network.
const (
	MaxCallers   = maxCallers
	MaxOfNetwork = maxOfNetwork
)

// Occupy takes the turn to hash for a network, until release is called.
func (p *Passwords) Occupy(ctx context.Context, from string) (release func(), err error) {
	return p.turns.Take(ctx, from)
}

// SetMemory sets how p counts and makes garbage collections.
func (p *Passwords) SetMemory(cycles func() uint64, collect func()) {
	p.memory.cycles, p.memory.collect = cycles, collect
}

// MaxThrottled is how many keys a Throttle remembers.
const MaxThrottled = maxThrottled

// Remembered returns how many keys t remembers.
func (t *Throttle) Remembered() int { return t.recent.Len() }
