package gpu

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"berth/compute"
)

// The sources of devices, as configuration spells them.
const (
	SourceAuto      = "auto"      // The NVIDIA driver, or nothing where there is none.
	SourceNVML      = "nvml"      // The NVIDIA driver; its absence is worth a warning.
	SourceFile      = "file"      // A list in a file, read again when it changes.
	SourceSimulated = "simulated" // Made up; executed on CPU shares.
	SourceNone      = "none"      // No devices.
)

// Source is where a node's devices come from. Any call may block for as long
// as a driver hangs.
type Source interface {
	// Devices returns what is there now, in the order of Index, the slices of
	// a device after it. With an error
	// it returns what the source last knew. It is for one caller at a time.
	Devices() ([]compute.GPU, error)
	// Read takes one reading of one device, at any time.
	Read(id compute.GPUID) (Reading, error)
	// Close lets go of the driver.
	Close() error
}

// Config says where devices come from.
type Config struct {
	Source    string   // One of the Source constants; "" is SourceAuto.
	File      string   // The list, for SourceFile.
	Simulated []string // As ParseSimulated reads them, for SourceSimulated.
	NodeName  string   // Part of the ids of simulated devices.

	// Load returns what share, 0 to 1, of its CPU quota a simulated device
	// uses. Nil means that all are idle.
	Load func(compute.GPUID) float64

	Now    func() time.Time // Nil is time.Now.
	Logger *slog.Logger     // Nil discards.
}

// Validate reports everything that is wrong with c, without touching a device.
func (c Config) Validate() error {
	switch c.Source {
	case "", SourceAuto, SourceNVML, SourceNone:
		return nil
	case SourceFile:
		if c.File == "" {
			return errors.New("gpus.file: needed when gpus.source is file")
		}
		return nil
	case SourceSimulated:
		if _, err := parseSimulated(c.NodeName, c.Simulated); err != nil {
			return fmt.Errorf("gpus.simulated: %w", err)
		}
		return nil
	}
	known := []string{SourceAuto, SourceNVML, SourceFile, SourceSimulated, SourceNone}
	return fmt.Errorf("gpus.source: unknown source %q, valid ones are %s",
		c.Source, strings.Join(known, ", "))
}

// Open returns the source that c names. A missing driver is no error: the
// source logs it once, has no devices, and looks again now and then.
func Open(c Config) (Source, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Load == nil {
		c.Load = func(compute.GPUID) float64 { return 0 }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("part", "gpu")
	switch c.Source {
	case SourceNone:
		return noSource{}, nil
	case SourceFile:
		return openFile(c)
	case SourceSimulated:
		return newSimulated(c)
	default:
		return openNVML(c), nil
	}
}

// errNoDevice is returned for a reading of a device that is not there.
var errNoDevice = errors.New("no such device")

// noSource has no devices.
type noSource struct{}

func (noSource) Devices() ([]compute.GPU, error)        { return nil, nil }
func (noSource) Read(id compute.GPUID) (Reading, error) { return Reading{}, errNoDevice }
func (noSource) Close() error                           { return nil }
