package compute

// Isolation is the separation between the executions on one device. It is never
// implied: each share of a GPU carries its actual isolation.
type Isolation uint8

// The kinds of isolation. Values are written to disk: append only.
const (
	IsolationNone        Isolation = iota // There is no GPU.
	IsolationSimulated                    // Advisory: only its share of the CPU quota is enforced, memory is counted.
	IsolationTimeSlicing                  // Advisory: the driver time-slices; memory is counted and not limited.
	IsolationMIGCompute                   // Advisory: a compute instance shares memory with its neighbours.
	IsolationMIG                          // Enforced: a slice has its own memory, caches and compute.
	IsolationDevice                       // Enforced: the whole device for one execution.
)

var isolationNames = names{"", "simulated", "time_slicing", "mig_compute", "mig", "device"}

// String returns the name of the isolation, "" without a GPU.
func (i Isolation) String() string { return isolationNames.text(uint8(i)) }

// MarshalText returns what String returns.
func (i Isolation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText accepts what String returns.
func (i *Isolation) UnmarshalText(text []byte) error {
	v, err := isolationNames.value("isolation", text)
	*i = Isolation(v)
	return err
}

// Enforced reports whether the hardware limits every execution to its share of
// memory and compute.
func (i Isolation) Enforced() bool { return i >= IsolationMIG && int(i) < len(isolationNames) }

// Level returns "enforced" or "advisory", "" without a GPU.
func (i Isolation) Level() string {
	switch {
	case i == IsolationNone:
		return ""
	case i.Enforced():
		return "enforced"
	}
	return "advisory"
}

// Weaker returns the weaker of two isolations. One without a GPU is ignored.
func (i Isolation) Weaker(other Isolation) Isolation {
	if i == IsolationNone || other != IsolationNone && other < i {
		return other
	}
	return i
}

// Isolation returns the isolation of an execution with milli thousandths of g
// from others on the same hardware.
func (g *GPU) Isolation(milli int) Isolation {
	if g.Simulated {
		return IsolationSimulated
	}
	if name := g.Slice(); name != "" {
		if s, err := ParseMIG(name); err != nil || s.Shared {
			return IsolationMIGCompute
		}
		return IsolationMIG
	}
	if milli < WholeGPU {
		return IsolationTimeSlicing
	}
	return IsolationDevice
}
