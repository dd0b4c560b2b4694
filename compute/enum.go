package compute

import "fmt"

// names maps the values 0, 1, 2, ... of a small enumeration to their texts.
type names []string

func (n names) text(v uint8) string {
	if int(v) < len(n) {
		return n[v]
	}
	return fmt.Sprintf("unknown_%d", v)
}

func (n names) value(what string, text []byte) (uint8, error) {
	for i, name := range n {
		if name == string(text) {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q", what, text)
}
