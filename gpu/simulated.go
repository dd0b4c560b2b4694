package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/compute"
)

// MaxSimulated is the most simulated devices that one node may have.
const MaxSimulated = 64

// simulatedMark ends the model name of every simulated device.
const simulatedMark = " (simulated)"

// kind is what is known about one type of device that can be simulated.
type kind struct {
	name       string
	vramGiB    int64
	speedMilli int     // Relative to an h100, which is 1,000.
	powerWatt  float64 // At full load.
}

// kinds returns the types that can be simulated, in the order of their names.
func kinds() []kind {
	return []kind{
		{"a10", 24, 250, 150},
		{"a100", 80, 600, 400},
		{"b200", 180, 1600, 1000},
		{"h100", 80, 1000, 700},
		{"h200", 141, 1100, 700},
		{"l4", 24, 200, 72},
		{"l40s", 48, 450, 350},
		{"t4", 16, 120, 70},
	}
}

// SimulatedTypes returns the names of the types that can be simulated, sorted.
func SimulatedTypes() []string {
	all := kinds()
	types := make([]string, len(all))
	for i, k := range all {
		types[i] = k.name
	}
	return types
}

// kindOf returns what is known about the type.
func kindOf(name string) (kind, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

// device returns the simulated device n of the node.
func (k kind) device(node string, n int) compute.GPU {
	return compute.GPU{
		ID:         compute.GPUID(fmt.Sprintf("SIM-%s-%d", node, n)),
		Index:      n,
		Type:       k.name,
		Model:      "NVIDIA " + strings.ToUpper(k.name) + simulatedMark,
		VRAMMiB:    k.vramGiB << 10,
		Driver:     "simulated",
		Simulated:  true,
		SpeedMilli: k.speedMilli,
	}
}

// ParseSimulated returns the devices that specs, such as "h100:2,l40s:4",
// describe for the node of that name. A type without a count is one device.
func ParseSimulated(node string, specs ...string) ([]compute.GPU, error) {
	return parseSimulated(node, specs)
}

func parseSimulated(node string, specs []string) ([]compute.GPU, error) {
	var devices []compute.GPU
	for part := range strings.SplitSeq(strings.Join(specs, ","), ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		k, count, err := parsePart(part)
		if err != nil {
			return nil, err
		}
		if len(devices)+count > MaxSimulated {
			return nil, fmt.Errorf("more than %d simulated GPUs on one node", MaxSimulated)
		}
		for range count {
			devices = append(devices, k.device(node, len(devices)))
		}
	}
	if len(devices) == 0 {
		return nil, errors.New(`no GPU named, want such as "h100:2,l40s:4"`)
	}
	return devices, nil
}

// parsePart reads one TYPE or TYPE:COUNT.
func parsePart(part string) (kind, int, error) {
	name, text, counted := strings.Cut(part, ":")
	k, known := kindOf(strings.ToLower(strings.TrimSpace(name)))
	if !known {
		return kind{}, 0, fmt.Errorf("unknown GPU type %q, valid ones are %s",
			name, strings.Join(SimulatedTypes(), ", "))
	}
	if !counted {
		return k, 1, nil
	}
	count, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || count < 1 || count > MaxSimulated {
		return kind{}, 0, fmt.Errorf("%q: %q is not a number of GPUs from 1 to %d", part, text, MaxSimulated)
	}
	return k, count, nil
}

// simulatedSource has the same devices for as long as it lives.
type simulatedSource struct {
	devices []compute.GPU
	sim     *simulation
}

func newSimulated(c Config) (*simulatedSource, error) {
	devices, err := parseSimulated(c.NodeName, c.Simulated)
	if err != nil {
		return nil, fmt.Errorf("gpus.simulated: %w", err)
	}
	return &simulatedSource{devices: devices, sim: newSimulation(c)}, nil
}

func (s *simulatedSource) Devices() ([]compute.GPU, error) {
	return slices.Clone(s.devices), nil
}

func (s *simulatedSource) Read(id compute.GPUID) (Reading, error) {
	device, ok := find(s.devices, id)
	if !ok {
		return Reading{}, fmt.Errorf("read %s: %w", id, errNoDevice)
	}
	return s.sim.read(device), nil
}

func (s *simulatedSource) Close() error { return nil }

// simulation makes up readings from the load of simulated devices.
type simulation struct {
	load func(compute.GPUID) float64
	now  func() time.Time

	mu     sync.Mutex
	meters map[compute.GPUID]meter
}

// meter is the energy a device has used up to an instant.
type meter struct {
	at         time.Time
	milliJoule float64
}

func newSimulation(c Config) *simulation {
	return &simulation{load: c.Load, now: c.Now, meters: make(map[compute.GPUID]meter)}
}

// What a simulated device reports when idle, and what full load adds. Only
// the load is real: the share of its CPU quota that an execution uses.
const (
	idleCelsius   = 32
	loadCelsius   = 40
	idleClockMHz  = 300
	loadClockMHz  = 1500
	memoryMHz     = 1600
	idlePowerPart = 0.15 // Of the power at full load.
)

// read returns a reading of the device as busy as its load says.
func (s *simulation) read(device compute.GPU) Reading {
	now := s.now()
	load := min(max(s.load(device.ID), 0), 1)
	k, _ := kindOf(device.Type)
	watt := k.powerWatt * (idlePowerPart + (1-idlePowerPart)*load)
	used := int64(load * float64(device.VRAMMiB))

	r := unread(device.ID, compute.InstantOf(now))
	r.UtilPercent, r.MemUtilPercent = 100*load, 100*load
	r.UsedMiB, r.FreeMiB, r.ReservedMiB = used, device.VRAMMiB-used, 0
	r.TemperatureC = idleCelsius + loadCelsius*load
	r.PowerWatt, r.PowerLimitWatt = watt, k.powerWatt
	r.EnergyMilliJ = s.meter(device.ID, now, watt)
	r.SMClockMHz, r.MemClockMHz = idleClockMHz+loadClockMHz*load, memoryMHz
	return r
}

// meter adds what the device used since it was last read, and returns the sum.
func (s *simulation) meter(id compute.GPUID, now time.Time, watt float64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, read := s.meters[id]
	if read && now.After(m.at) {
		m.milliJoule += watt * float64(now.Sub(m.at).Milliseconds())
	}
	m.at = now
	s.meters[id] = m
	return int64(m.milliJoule)
}
