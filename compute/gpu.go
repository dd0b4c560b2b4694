package compute

// Health is what is known about a device.
type Health uint8

// The states of health. Values are written to disk: append only.
const (
	HealthOK      Health = iota
	HealthFailed         // The device reports a fatal error: nothing is placed on it.
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

// GPU is one device of a node.
type GPU struct {
	ID         GPUID  `cbor:"1,keyasint"`
	Index      int    `cbor:"2,keyasint"` // As the driver numbers it on its node.
	Type       string `cbor:"3,keyasint"` // Our name: h100, l40s, ...
	Model      string `cbor:"4,keyasint"` // The driver's name; ends in "(simulated)" for simulated ones.
	VRAMMiB    int64  `cbor:"5,keyasint"`
	PCIBus     string `cbor:"6,keyasint,omitempty"`
	MIG        string `cbor:"7,keyasint,omitempty"` // "enabled", "disabled", or "" where there is no such mode.
	Driver     string `cbor:"8,keyasint,omitempty"`
	Health     Health `cbor:"9,keyasint,omitempty"`
	Simulated  bool   `cbor:"10,keyasint,omitempty"`
	SpeedMilli int    `cbor:"11,keyasint,omitempty"` // Simulated speed, h100 = 1,000; 0 for real devices.
	UsedMilli  int    `cbor:"12,keyasint,omitempty"` // Given to attempts; kept by the state, not by the node.
}

// Inventory is what a node reports of itself: the part of a Node that the
// node, and not the state, is the source of.
type Inventory struct {
	Node      NodeID `cbor:"1,keyasint"`
	Version   uint64 `cbor:"2,keyasint"` // Rises with each change.
	VCPUMilli int64  `cbor:"3,keyasint"` // What executions may use.
	MemoryMiB int64  `cbor:"4,keyasint"`
	GPUs      []GPU  `cbor:"5,keyasint,omitempty"` // In the order of Index.
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
