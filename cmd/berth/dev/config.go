package dev

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/gpu"
)

// DefaultGPUs are the simulated GPUs of a cluster without --gpus.
const DefaultGPUs = "n1=h100:2,l40s:4;n2=a100:4;n3=t4:4"

// MaxNodes is the largest number of nodes on one machine.
const MaxNodes = 253

// defaultNodes is the number of nodes of a cluster without --nodes.
const defaultNodes = 3

// Config configures a cluster on this machine.
type Config struct {
	Dir   string // Holds all files of the cluster.
	Nodes int    // 0 for those in the directory, or 3 for a new cluster.

	// Workers is the number of workers: the last of Nodes hold no state and
	// only execute. An existing cluster keeps its workers.
	Workers int

	GPUs   string // In the format of DefaultGPUs; "" for those in the directory, or the default.
	Binary string // The berth program.

	// Profiles has the nodes serve profiles of themselves, to whoever has the token
	// in ProfilesToken.
	Profiles bool

	// Set is settings for every node, each KEY=VALUE, beside those of earlier
	// starts. KEY= withdraws one.
	Set []string

	// Restart restarts nodes that exit.
	Restart bool

	Logger *slog.Logger
	Now    func() time.Time // Nil means time.Now.
}

// validate makes the directory absolute and reports every invalid field of c.
func (c *Config) validate() error {
	var faults []error
	if c.Nodes < 0 || c.Nodes > MaxNodes {
		faults = append(faults, fmt.Errorf("--nodes: %d is not 1 to %d", c.Nodes, MaxNodes))
	}
	if nodes := cmp.Or(c.Nodes, defaultNodes); c.Workers < 0 || c.Workers >= nodes {
		faults = append(faults, fmt.Errorf("--workers: %d is not 0 to %d: one of %d nodes has to hold the state",
			c.Workers, nodes-1, nodes))
	}
	if c.GPUs != "" && len(faults) == 0 {
		if _, err := ParseGPUs(c.GPUs, cmp.Or(c.Nodes, MaxNodes)); err != nil {
			faults = append(faults, fmt.Errorf("--gpus: %w", err))
		}
	}
	if _, err := ParseSettings(c.Set); err != nil {
		faults = append(faults, err)
	}
	dir, err := filepath.Abs(c.Dir)
	c.Dir = dir
	return errors.Join(append(faults, err)...)
}

// nodeName returns the name of the i-th node, counted from 0.
func nodeName(i int) string { return "n" + strconv.Itoa(i+1) }

// ParseGPUs returns the simulated GPUs in spec by node name, for a cluster of
// the given number of nodes: NODE=TYPE:COUNT,TYPE:COUNT;NODE=... An empty spec
// is DefaultGPUs for the existing nodes.
func ParseGPUs(spec string, nodes int) (map[string]string, error) {
	byDefault := spec == ""
	if byDefault {
		spec = DefaultGPUs
	}
	names := make([]string, nodes)
	for i := range names {
		names[i] = nodeName(i)
	}
	gpus := map[string]string{}
	for part := range strings.SplitSeq(spec, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, devices, found := strings.Cut(part, "=")
		name, devices = strings.TrimSpace(name), strings.TrimSpace(devices)
		switch {
		case !found:
			return nil, fmt.Errorf("%q is not NODE=TYPE:COUNT,..., as in %q", part, DefaultGPUs)
		case byDefault && !slices.Contains(names, name):
			continue
		case !slices.Contains(names, name):
			return nil, fmt.Errorf("there is no node %q, only %s", name, strings.Join(names, ", "))
		case gpus[name] != "":
			return nil, fmt.Errorf("node %s is named twice", name)
		}
		if _, err := gpu.ParseSimulated(name, devices); err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
		gpus[name] = devices
	}
	return gpus, nil
}
