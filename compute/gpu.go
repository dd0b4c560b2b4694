package compute

import (
	"slices"
	"strconv"
)

// Health is the known condition of a device.
type Health uint8

// The states of health. Values are written to disk: append only.
const (
	HealthOK      Health = iota
	HealthFailed         // The device reports a fatal error; it takes no work.
	HealthMissing        // No longer reported, but an attempt still holds it.
)

var healthNames = names{"ok", "failed", "missing"}

// String returns the state of health as clients read it.
func (h Health) String() string { return healthNames.text(uint8(h)) }

// MarshalText returns what String returns.
func (h Health) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText accepts what String returns.
func (h *Health) UnmarshalText(text []byte) error {
	v, err := healthNames.value("health", text)
	*h = Health(v)
	return err
}

// The MIG modes of a device that is not a slice.
const (
	MIGNone     = "" // The device does not support MIG.
	MIGEnabled  = "enabled"
	MIGDisabled = "disabled"
)

// GPU is one device of a node, or one MIG slice of a device. A slice has its
// own driver UUID and memory, and the Index of its parent.
type GPU struct {
	ID         GPUID  `cbor:"1,keyasint"`
	Index      int    `cbor:"2,keyasint"` // As the driver numbers it on its node.
	Type       string `cbor:"3,keyasint"` // Berth's name: h100, l40s, ...
	Model      string `cbor:"4,keyasint"` // The driver's name; ends in "(simulated)" for simulated ones.
	VRAMMiB    int64  `cbor:"5,keyasint"`
	PCIBus     string `cbor:"6,keyasint,omitempty"`
	MIG        string `cbor:"7,keyasint,omitempty"` // One of the MIG constants, or the slice, as in "1g_5gb".
	Driver     string `cbor:"8,keyasint,omitempty"`
	Health     Health `cbor:"9,keyasint,omitempty"`
	Simulated  bool   `cbor:"10,keyasint,omitempty"`
	SpeedMilli int    `cbor:"11,keyasint,omitempty"` // Simulated speed, h100 = 1,000; 0 for real devices.
	UsedMilli  int    `cbor:"12,keyasint,omitempty"` // Held by attempts; set by the state, not by the node.

	// Devices of one node with the same Island are joined by NVLink or share a
	// PCIe switch; 0 is unknown.
	Island int `cbor:"13,keyasint,omitempty"`

	// For slices only: the sliced device, which the node reports too, and the
	// driver's numbers of the GPU instance and the compute instance.
	Parent          GPUID `cbor:"14,keyasint,omitempty"`
	Instance        int   `cbor:"15,keyasint,omitempty"`
	ComputeInstance int   `cbor:"16,keyasint,omitempty"`

	// Capability is the CUDA compute capability in tenths, 89 for 8.9; 0 for
	// unknown.
	Capability int `cbor:"17,keyasint,omitempty"`
}

// bfloat16Since is the compute capability of the first devices that compute in
// bfloat16.
const bfloat16Since = 80

// BFloat16 reports whether g computes in bfloat16, as far as its compute
// capability is known.
func (g *GPU) BFloat16() bool { return g.Capability >= bfloat16Since }

// CapabilityName returns the compute capability as NVIDIA writes it, as in
// "8.9"; "" if it is unknown.
func (g *GPU) CapabilityName() string {
	if g.Capability <= 0 {
		return ""
	}
	return strconv.Itoa(g.Capability/10) + "." + strconv.Itoa(g.Capability%10)
}

// Slice returns the name of the MIG slice, as in "1g_5gb"; "" when g is not a
// slice.
func (g *GPU) Slice() string {
	if g.MIG == MIGNone || g.MIG == MIGEnabled || g.MIG == MIGDisabled {
		return ""
	}
	return g.MIG
}

// Sliced reports whether g is in MIG mode: only its slices take work.
func (g *GPU) Sliced() bool { return g.MIG == MIGEnabled }

// Is reports whether g is of a kind that r asks for: of an accepted type, and
// the requested slice or no slice. Health and free capacity do not matter.
func (g *GPU) Is(r Request) bool {
	switch {
	case g.Slice() != r.MIG || g.Sliced() || !EnoughVRAM(g.VRAMMiB, r.MinVRAMMiB):
		return false
	case r.GPUType != "" || r.GPUs == 0:
		return g.Type == r.GPUType
	}
	return len(r.AnyOf) == 0 || slices.Contains(r.AnyOf, g.Type)
}

// nominalPercent is how much of its nominal memory a device reports at least:
// drivers and error correction keep the rest.
const nominalPercent = 93

// EnoughVRAM reports whether a device that reports so much memory counts as one
// of the wanted size, as its maker names it: an L4 reports 22.5 of its 24 GiB.
func EnoughVRAM(vramMiB, wantMiB int64) bool { return vramMiB*100 >= wantMiB*nominalPercent }

// ShareMiB returns the memory of milli thousandths of g. It rounds down, so
// that shares that add up to at most g never hold more than its memory.
func (g *GPU) ShareMiB(milli int) int64 { return g.VRAMMiB * int64(milli) / WholeGPU }

// Inventory is a node's report on itself: the part of a Node whose source is
// the node and not the state.
type Inventory struct {
	Node      NodeID `cbor:"1,keyasint"`
	Version   uint64 `cbor:"2,keyasint"` // Rises with each change.
	VCPUMilli int64  `cbor:"3,keyasint"` // Available to executions.
	MemoryMiB int64  `cbor:"4,keyasint"`
	GPUs      []GPU  `cbor:"5,keyasint,omitempty"` // In the order of Index.
	Gaps      []Gap  `cbor:"6,keyasint,omitempty"` // In rising order.

	ScratchMiB int64   `cbor:"10,keyasint,omitempty"` // The largest scratch space on disk; 0 for none.
	Offers     []Offer `cbor:"11,keyasint,omitempty"` // Sorted.

	// EngineFault is why the node's Docker engine, which its offers name, starts no
	// containers at present; "" while it answers.
	EngineFault string `cbor:"12,keyasint,omitempty"`
}

// GPUSample is one reading of one device. A value that the device does not
// report is negative.
type GPUSample struct {
	GPU             GPUID
	At              Instant
	UtilPercent     float64
	MemUtilPercent  float64
	UsedMiB         int64
	FreeMiB         int64
	TemperatureC    float64
	PowerWatt       float64
	PowerLimitWatt  float64
	EnergyMilliJ    int64 // Since the driver was loaded; a counter.
	SMClockMHz      float64
	MemClockMHz     float64
	PCIeRxBytesPerS float64
	PCIeTxBytesPerS float64
	XIDErrors       int64 // The last XID; 0 for none.
}
