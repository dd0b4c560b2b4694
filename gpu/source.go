package gpu

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"berth/compute"
)

// The sources of devices, as spelled in the configuration.
const (
	SourceAuto      = "auto"      // The NVIDIA driver, or no devices without one.
	SourceNVML      = "nvml"      // The NVIDIA driver; its absence is logged as a warning.
	SourceFile      = "file"      // A list in a file, read again when it changes.
	SourceSimulated = "simulated" // Simulated devices; executions run on CPU shares.
	SourceNone      = "none"      // No devices.
)

// Source reports the devices of a node. Any call may block for as long as a
// driver hangs.
type Source interface {
	// Devices returns the present devices in the order of Index, the slices of
	// a device after it. With an error it returns the devices last known. It
	// must not be called by two goroutines at once.
	Devices() ([]compute.GPU, error)
	// Read takes one reading of one device, at any time.
	Read(id compute.GPUID) (Reading, error)
	// Close releases the driver.
	Close() error
}

// Config selects a source of devices.
type Config struct {
	Source    string   // One of the Source constants; "" is SourceAuto.
	File      string   // The list, for SourceFile.
	Simulated []string // As ParseSimulated reads them, for SourceSimulated.
	NodeName  string   // Part of the ids of simulated devices.

	// Load returns the share, 0 to 1, of its CPU quota that a simulated device
	// uses. Nil means that all are idle.
	Load func(compute.GPUID) float64

	Now    func() time.Time // Nil is time.Now.
	Logger *slog.Logger     // Nil discards.
}

// Validate reports all faults of c without touching a device.
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

// Open returns the source that c names. A missing driver is not an error: the
// source logs it once, has no devices, and retries from time to time.
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

// errNoDevice is returned for a reading of an unknown device.
var errNoDevice = errors.New("no such device")

// noSource has no devices.
type noSource struct{}

func (noSource) Devices() ([]compute.GPU, error)        { return nil, nil }
func (noSource) Read(id compute.GPUID) (Reading, error) { return Reading{}, errNoDevice }
func (noSource) Close() error                           { return nil }
