package check

import "github.com/anishathalye/porcupine"

// Use presents an API key: its output says whether it was accepted, a bool.
type Use struct{}

// Toggle makes an active key inactive or the other way round. Op names the
// operation: a repeat of it is the same one. Its output says whether the key
// was active then, a bool.
type Toggle struct{ Op string }

// Delete deletes a key for good. Its output is true.
type Delete struct{}

// key is the state of the model: one key, which exists and is active at first.
// A repeated toggle is the newest one: a client goes on only when it knows how
// the last one ended, or leaves the key alone.
type key struct {
	inactive, deleted bool
	toggled           string // Op of the newest toggle.
}

func keyModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return key{} },
		Step: func(state, in, out any) (bool, any) {
			k := state.(key)
			switch in := in.(type) {
			case Toggle:
				if k.deleted {
					return out == nil, k
				}
				if k.toggled != in.Op {
					k.inactive, k.toggled = !k.inactive, in.Op
				}
				return out == nil || out == !k.inactive, k
			case Delete:
				k.deleted = true
				return true, k
			}
			return out == nil || out == (!k.deleted && !k.inactive), k
		},
	}
}
