package check

import "github.com/anishathalye/porcupine"

// Write sets a register. It answers nothing; its output is true.
type Write struct{ Value int }

// Read asks for a register's value, which is its output, an int.
type Read struct{}

// registerModel is a register that holds 0 at first.
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
