package gpu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"berth/compute"
)

// Limits of a device file.
const (
	maxFileBytes   = 1 << 20
	maxFileDevices = 1024
)

// entry is one device as the file spells it. Type or model is required. A
// simulated device may omit fields that its type implies. A MIG slice has mig set, as
// in 1g.5gb, and names its parent, a device of the file with mig: enabled.
type entry struct {
	ID         string `yaml:"id"`
	Type       string `yaml:"type"`
	Model      string `yaml:"model"`
	VRAMMiB    int64  `yaml:"vram_mib"`
	PCIBus     string `yaml:"pci_bus"`
	MIG        string `yaml:"mig"`
	Driver     string `yaml:"driver"`
	Health     string `yaml:"health"`
	Simulated  bool   `yaml:"simulated"`
	SpeedMilli int    `yaml:"speed_milli"`
	Island     int    `yaml:"island"` // Equal for linked devices.

	Parent          string `yaml:"parent"` // Only slices have this and the next two fields.
	Instance        int    `yaml:"instance"`
	ComputeInstance int    `yaml:"compute_instance"`
}

// ParseFile returns the devices that a device file lists, in YAML or JSON. An
// error names the line. An empty text is an error, so that a file read while it
// is being written does not remove every device. A node without devices has the
// list [].
func ParseFile(text []byte) ([]compute.GPU, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("empty, write [] for no devices")
	}
	// Tabs indent JSON, but not YAML. Neither has them inside a token.
	if text = bytes.TrimSpace(text); text[0] == '[' {
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, fault(err)
	}
	if len(file.Docs) != 1 {
		return nil, fmt.Errorf("%d documents, want one list of devices", len(file.Docs))
	}
	list, ok := file.Docs[0].Body.(*ast.SequenceNode)
	if !ok {
		return nil, errors.New("line 1: want a list of devices")
	}
	if len(list.Values) > maxFileDevices {
		return nil, fmt.Errorf("more than %d devices", maxFileDevices)
	}
	return parseEntries(list.Values)
}

// fault rewrites a parse error for the author of the file: the line first, and
// without the names of Go types.
func fault(err error) error {
	mistyped, ok := errors.AsType[*yaml.TypeError](err)
	if ok && mistyped.Token != nil {
		return fmt.Errorf("line %d: %q is not of type %s",
			mistyped.Token.Position.Line, mistyped.Token.Value, mistyped.DstType)
	}
	located, ok := errors.AsType[yaml.Error](err)
	if ok && located.GetToken() != nil {
		return fmt.Errorf("line %d: %s", located.GetToken().Position.Line, located.GetMessage())
	}
	return err
}

// parseEntries reads each device and reports the faults of all of them.
func parseEntries(nodes []ast.Node) ([]compute.GPU, error) {
	devices := make([]compute.GPU, 0, len(nodes))
	whole := 0 // Devices so far that are not slices.
	lines := make([]int, 0, len(nodes))
	var faults []error
	for _, node := range nodes {
		var e entry
		err := yaml.NodeToValue(node, &e, yaml.Strict())
		if err != nil {
			faults = append(faults, fault(err))
			continue
		}
		device, err := e.device(whole)
		if _, twice := find(devices, device.ID); err == nil && twice {
			err = fmt.Errorf("id %q is there twice", device.ID)
		}
		line := node.GetToken().Position.Line
		if err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", line, err))
		}
		if device.Parent == "" {
			whole++
		}
		devices, lines = append(devices, device), append(lines, line)
	}
	if len(faults) == 0 {
		faults = placeSlices(devices, lines)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return devices, nil
}

// placeSlices gives each slice the index of its parent, moves it behind the
// parent, and returns the faults in the parents that slices name.
func placeSlices(devices []compute.GPU, lines []int) (faults []error) {
	for i := range devices {
		g := &devices[i]
		if g.Parent == "" {
			continue
		}
		parent, known := find(devices, g.Parent)
		if !known || !parent.Sliced() || parent.Type != g.Type || parent.Simulated != g.Simulated {
			faults = append(faults, fmt.Errorf(
				"line %d: parent %q is not a device of this file of type %s with mig: %s",
				lines[i], g.Parent, g.Type, compute.MIGEnabled))
		}
		g.Index = parent.Index
	}
	slices.SortStableFunc(devices, func(a, b compute.GPU) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Instance, b.Instance),
			cmp.Compare(a.ComputeInstance, b.ComputeInstance))
	})
	return faults
}

// device returns the device at the index that e describes.
func (e entry) device(index int) (compute.GPU, error) {
	g := compute.GPU{
		ID: compute.GPUID(e.ID), Index: index, Type: e.Type, Model: e.Model,
		VRAMMiB: e.VRAMMiB, PCIBus: e.PCIBus, MIG: compute.MIGName(e.MIG), Driver: e.Driver,
		Simulated: e.Simulated, SpeedMilli: e.SpeedMilli, Island: e.Island,
		Parent: compute.GPUID(e.Parent), Instance: e.Instance, ComputeInstance: e.ComputeInstance,
	}
	if g.Type == "" {
		g.Type = TypeOf(g.Model)
	}
	if g.Model == "" {
		g.Model = modelOf(g.Type, g.Slice())
	}
	if k, known := kindOf(g.Type); known && g.Capability == 0 {
		g.Capability = k.capability
	}
	if e.Simulated {
		simulate(&g)
	}
	if e.Health != "" {
		if err := g.Health.UnmarshalText([]byte(e.Health)); err != nil {
			return g, err
		}
	}
	return g, e.check(g)
}

// modelOf returns a driver's name for a device of the type, or for a slice of
// one.
func modelOf(gpuType, slice string) string {
	model := "NVIDIA " + strings.ToUpper(gpuType)
	if slice != "" {
		model += " MIG " + compute.MIGProfile(slice)
	}
	return model
}

// simulate marks g as simulated and fills in the fields that its type implies.
func simulate(g *compute.GPU) {
	if !strings.HasSuffix(g.Model, simulatedMark) {
		g.Model += simulatedMark
	}
	k, _ := kindOf(g.Type)
	vramMiB, speedMilli := k.memory()<<10, k.speedMilli
	if slice, err := compute.ParseMIG(g.Slice()); err == nil {
		vramMiB = int64(slice.MemoryGiB) << 10
		speedMilli = speedMilli * slice.Compute / compute.MIGParts(g.Type)
	}
	if g.VRAMMiB == 0 {
		g.VRAMMiB = vramMiB
	}
	if g.SpeedMilli == 0 {
		g.SpeedMilli = speedMilli
	}
	if g.Driver == "" {
		g.Driver = "simulated"
	}
}

// check reports the faults of e, which became g.
func (e entry) check(g compute.GPU) error {
	switch {
	case e.ID == "":
		return errors.New("id is needed")
	case e.Type == "" && e.Model == "":
		return errors.New("type or model is needed")
	case g.Type != typeName(g.Type):
		return fmt.Errorf("type %q has other characters than a-z, 0-9 and _, or is cpu", g.Type)
	case g.VRAMMiB <= 0:
		return errors.New("vram_mib is needed, and positive")
	case g.Slice() != "" && !isSlice(g.MIG):
		return fmt.Errorf("mig %q is neither %s, %s nor a slice such as 1g.5gb",
			e.MIG, compute.MIGEnabled, compute.MIGDisabled)
	case (g.Slice() != "") != (e.Parent != ""):
		return errors.New("parent is needed for a MIG slice, and for nothing else")
	case e.Parent != "" && e.Instance < 1:
		return errors.New("instance is needed for a MIG slice, and positive")
	case e.Parent == "" && (e.Instance != 0 || e.ComputeInstance != 0):
		return errors.New("instance and compute_instance are for MIG slices only")
	case e.Island < 0 || e.ComputeInstance < 0:
		return errors.New("island and compute_instance are not negative")
	case g.SpeedMilli < 0 || g.Simulated && g.SpeedMilli == 0:
		return errors.New("speed_milli is needed for a simulated device of this type")
	case !g.Simulated && g.SpeedMilli != 0:
		return errors.New("speed_milli is for simulated devices only")
	}
	return nil
}

// isSlice reports whether name is the name of a MIG slice.
func isSlice(name string) bool {
	_, err := compute.ParseMIG(name)
	return err == nil
}

// fileSource reads its devices from a file on each call. The file is small, and
// comparing modification times would miss quick changes.
type fileSource struct {
	path string
	sim  *simulation

	mu      sync.Mutex
	devices []compute.GPU // The last list without a fault.
}

func openFile(c Config) (*fileSource, error) {
	s := &fileSource{path: c.File, sim: newSimulation(c)}
	if _, err := s.Devices(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *fileSource) Devices() ([]compute.GPU, error) {
	devices, err := readFile(s.path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return slices.Clone(s.devices), fmt.Errorf("gpu file %s: %w", s.path, err)
	}
	s.devices = devices
	return slices.Clone(devices), nil
}

// Read returns simulated values for a simulated device. For a device that is
// only listed, all values are unknown.
func (s *fileSource) Read(id compute.GPUID) (Reading, error) {
	s.mu.Lock()
	devices := s.devices
	s.mu.Unlock()
	device, ok := find(devices, id)
	switch {
	case !ok:
		return Reading{}, fmt.Errorf("read %s: %w", id, errNoDevice)
	case device.Simulated:
		return s.sim.read(device, devices), nil
	}
	return unread(id, compute.InstantOf(s.sim.now())), nil
}

func (s *fileSource) Close() error { return nil }

// readFile returns the devices that the file lists.
func readFile(path string) ([]compute.GPU, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("more than %d bytes", maxFileBytes)
	}
	return ParseFile(text)
}
