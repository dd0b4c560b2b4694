package composefile

import (
	"maps"
	"slices"
	"strconv"

	"github.com/compose-spec/compose-go/v2/types"
)

// The names of networks in an emitted file.
const (
	outside  = "outside"
	isolated = "internal-" // And its index.
)

// noResolver is the name server of services that reach no other: names of the file are
// resolved by the engine, and no question for others leaves the machine.
const noResolver = "127.0.0.1"

// networks returns the networks of the emitted file: the one with a way out, which exists,
// and those without.
func (f *File) networks(frame *Frame) map[string]any {
	networks := make(map[string]any)
	if frame.Network != "none" {
		networks[outside] = map[string]any{"name": frame.Network, "external": true}
	}
	for i, n := range frame.Internal[:min(len(f.Internal), len(frame.Internal))] {
		labels := maps.Clone(frame.Labels)
		maps.Copy(labels, n.Labels)
		networks[isolated+strconv.Itoa(i)] = map[string]any{
			"name": n.Name, "driver": "bridge", "internal": true, "labels": labels,
			"ipam": map[string]any{"config": []any{map[string]any{"subnet": n.Subnet}}},
			"driver_opts": map[string]string{
				"com.docker.network.bridge.name":         n.Link,
				"com.docker.network.bridge.inhibit_ipv4": "true",
			},
		}
	}
	return networks
}

// connect adds the networks of a service. All that have a way out are one network.
func (f *File) connect(out map[string]any, c *types.ServiceConfig, frame *Frame) {
	networks := make(map[string]any)
	for name, config := range c.Networks {
		emitted := outside
		if i, found := slices.BinarySearch(f.Internal, name); found {
			if emitted = isolated + strconv.Itoa(i); i >= len(frame.Internal) {
				continue
			}
		} else if frame.Network == "none" {
			continue
		}
		networks[emitted] = withAliases(networks[emitted], config)
	}
	if len(networks) == 0 {
		out["network_mode"] = "none"
		return
	}
	out["networks"] = networks
	if _, found := networks[outside]; !found {
		out["dns"] = []string{noResolver}
	}
}

// withAliases adds the names that a service has on one of its networks to those before.
func withAliases(before any, config *types.ServiceNetworkConfig) map[string]any {
	all, _ := before.(map[string]any)
	if all == nil {
		all = make(map[string]any)
	}
	if config != nil && len(config.Aliases) > 0 {
		aliases, _ := all["aliases"].([]string)
		all["aliases"] = append(aliases, plainAll(config.Aliases)...)
	}
	return all
}
