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

// device returns the simulated device n of the node.
func (k kind) device(node string, n int) compute.GPU {
	return compute.GPU{
		ID:         compute.GPUID(fmt.Sprintf("SIM-%s-%d", node, n)),
		Index:      n,
		Type:       k.name,
		Model:      modelOf(k.name, "") + simulatedMark,
		VRAMMiB:    k.memory() << 10,
		Driver:     "simulated",
		Simulated:  true,
		SpeedMilli: k.speedMilli,
		Capability: k.capability,
	}
}

// slice returns slice n, from 1, of a simulated device.
func (k kind) slice(parent compute.GPU, name string, n int) compute.GPU {
	g := compute.GPU{
		ID:    compute.GPUID(fmt.Sprintf("%s-%d", parent.ID, n)),
		Index: parent.Index, Type: k.name, Model: modelOf(k.name, name),
		MIG: name, Parent: parent.ID, Instance: n, Simulated: true, Capability: k.capability,
	}
	simulate(&g)
	return g
}

// holds returns how many slices of one name a device of the kind is cut into.
// Both its compute and its memory bound the number.
func (k kind) holds(s compute.MIGSlice) int {
	return min(compute.MIGParts(k.name)/s.Compute, int(k.memory())/s.MemoryGiB)
}

// ParseSimulated returns the devices that specs describe for the node of that
// name. Each is
//
//	TYPE[:COUNT][/ISLAND]          h100:8/4  eight devices, joined in fours
//	TYPE.mig_SLICE[:COUNT]         a100.mig_1g_5gb:7  seven slices
//
// Commas separate specs too. A type without a count is one device. Without an
// island its links are unknown. Slices need as many devices in MIG mode as hold
// them, which are listed too.
func ParseSimulated(node string, specs ...string) ([]compute.GPU, error) {
	return parseSimulated(node, specs)
}

func parseSimulated(node string, specs []string) ([]compute.GPU, error) {
	var devices []compute.GPU
	whole, island := 0, 0
	for part := range strings.SplitSeq(strings.Join(specs, ","), ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		p, err := parsePart(part)
		if err != nil {
			return nil, err
		}
		added := p.devices(node, whole, island)
		if len(devices)+len(added) > MaxSimulated {
			return nil, fmt.Errorf("more than %d simulated GPUs on one node", MaxSimulated)
		}
		for _, g := range added {
			island = max(island, g.Island)
			if g.Parent == "" {
				whole++
			}
		}
		devices = append(devices, added...)
	}
	if len(devices) == 0 {
		return nil, errors.New(`no GPU named, want such as "h100:2,l40s:4"`)
	}
	return devices, nil
}

// simulatedPart is one part of the input of ParseSimulated.
type simulatedPart struct {
	kind   kind
	slice  string // "" for whole devices.
	each   int    // Slices on one device.
	count  int
	island int // Devices in one island, 0 for unknown.
}

// devices returns the devices of the part, behind whole devices and island
// islands.
func (p simulatedPart) devices(node string, whole, island int) []compute.GPU {
	var out []compute.GPU
	var parent compute.GPU
	for i := range p.count {
		switch {
		case p.slice == "":
			g := p.kind.device(node, whole+i)
			if p.island > 0 {
				g.Island = island + 1 + i/p.island
			}
			out = append(out, g)
			continue
		case i%p.each == 0:
			parent = p.kind.device(node, whole+i/p.each)
			parent.MIG = compute.MIGEnabled
			out = append(out, parent)
		}
		out = append(out, p.kind.slice(parent, p.slice, 1+i%p.each))
	}
	return out
}

// parsePart reads one part.
func parsePart(part string) (simulatedPart, error) {
	text, islandText, joined := strings.Cut(part, "/")
	text, countText, counted := strings.Cut(text, ":")
	name, slice, sliced := strings.Cut(strings.ToLower(strings.TrimSpace(text)), ".mig_")
	k, known := kindOf(name)
	if !known {
		return simulatedPart{}, fmt.Errorf("unknown GPU type %q, valid ones are such as %s",
			strings.TrimSpace(text), strings.Join(suggestTypes(name), ", "))
	}
	p := simulatedPart{kind: k, slice: slice, count: 1}
	if sliced {
		s, err := compute.ParseMIG(slice)
		if err != nil {
			return p, fmt.Errorf("%q: %w", part, err)
		}
		if p.each = k.holds(s); p.each == 0 || s.Shared || joined {
			return p, fmt.Errorf("%q: an %s has no such slice, or an island is named", part, k.name)
		}
	}
	var err error
	if counted {
		if p.count, err = parseCount(part, countText, "number of GPUs"); err != nil {
			return p, err
		}
	}
	if joined {
		p.island, err = parseCount(part, islandText, "number of GPUs in an island")
	}
	return p, err
}

// parseCount parses a number of devices. part and what name it in errors.
func parseCount(part, text, what string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > MaxSimulated {
		return 0, fmt.Errorf("%q: %q is not a %s from 1 to %d", part, text, what, MaxSimulated)
	}
	return n, nil
}

// simulatedSource has a fixed list of devices.
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
	return s.sim.read(device, s.devices), nil
}

func (s *simulatedSource) Close() error { return nil }

// simulation derives readings from the load of simulated devices.
type simulation struct {
	load func(compute.GPUID) float64
	now  func() time.Time

	mu     sync.Mutex
	meters map[compute.GPUID]meter
}

// meter is the energy that a device has used up to an instant.
type meter struct {
	at         time.Time
	milliJoule float64
}

func newSimulation(c Config) *simulation {
	return &simulation{load: c.Load, now: c.Now, meters: make(map[compute.GPUID]meter)}
}

// Readings of an idle simulated device, and the increase under full load. Only
// the load is real: the share of its CPU quota that an execution uses.
const (
	idleCelsius   = 32
	loadCelsius   = 40
	idleClockMHz  = 300
	loadClockMHz  = 1500
	memoryMHz     = 1600
	idlePowerPart = 0.15 // Part of the power at full load.
)

// loadOf returns the load of the device, one of all. The load of a device in
// MIG mode is that of its slices, weighted by their size.
func (s *simulation) loadOf(device compute.GPU, all []compute.GPU) float64 {
	if !device.Sliced() || device.SpeedMilli == 0 {
		return min(max(s.load(device.ID), 0), 1)
	}
	load := 0.0
	for _, g := range all {
		if g.Parent == device.ID {
			load += min(max(s.load(g.ID), 0), 1) * float64(g.SpeedMilli) / float64(device.SpeedMilli)
		}
	}
	return min(load, 1)
}

// SimulatedWatt returns the power of a simulated device at a load of 0 to 1. It
// is negative for a slice, which has no power of its own.
func SimulatedWatt(device compute.GPU, load float64) float64 {
	k, known := kindOf(device.Type)
	if !known || device.Slice() != "" {
		return -1
	}
	return k.powerWatt * (idlePowerPart + (1-idlePowerPart)*load)
}

// read returns a reading of the device, one of all, for its load. A slice has
// no power, temperature or clock of its own.
func (s *simulation) read(device compute.GPU, all []compute.GPU) Reading {
	now := s.now()
	load := s.loadOf(device, all)
	k, _ := kindOf(device.Type)
	watt := SimulatedWatt(device, load)
	used := int64(load * float64(device.VRAMMiB))

	r := unread(device.ID, compute.InstantOf(now))
	r.UtilPercent, r.MemUtilPercent = 100*load, 100*load
	r.UsedMiB, r.FreeMiB, r.ReservedMiB = used, device.VRAMMiB-used, 0
	if device.Slice() != "" {
		return r
	}
	r.TemperatureC = idleCelsius + loadCelsius*load
	r.PowerWatt, r.PowerLimitWatt = watt, k.powerWatt
	r.EnergyMilliJ = s.meter(device.ID, now, watt)
	r.SMClockMHz, r.MemClockMHz = idleClockMHz+loadClockMHz*load, memoryMHz
	return r
}

// meter adds the energy since the last reading and returns the sum.
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
