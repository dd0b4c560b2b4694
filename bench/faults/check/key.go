package check

import "github.com/anishathalye/porcupine"

// Use presents an API key. Its output, a bool, is true if the key was accepted.
type Use struct{}

// Toggle enables or disables an API key. Op names the operation; a repeat has
// the same one. Its output, a bool, is true if the key was active before.
type Toggle struct{ Op string }

// Delete deletes a key permanently. Its output is true.
type Delete struct{}

// key is the state of the model: one key, which exists and is active at first.
// Only the newest toggle can be repeated: a client continues only after it
// knows the outcome of the last one, or leaves the key alone.
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
