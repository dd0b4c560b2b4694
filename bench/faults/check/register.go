package check

import "github.com/anishathalye/porcupine"

// Write sets a register. Its output is true.
type Write struct{ Value int }

// Read reads a register. Its output is the value, an int.
type Read struct{}

// registerModel is a register with the initial value 0.
func registerModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, in, out any) (bool, any) {
			if w, ok := in.(Write); ok {
				return true, w.Value
			}
			return out == nil || out == state, state
		},
	}
}
