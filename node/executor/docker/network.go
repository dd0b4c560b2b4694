package docker

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"berth/node/executor/supervise"
)

// NoNetwork is the name of the network that is none.
const NoNetwork = "none"

// Bridge describes the network of the containers of one slot.
type Bridge struct {
	Slot   int
	Link   string // Name of the bridge on the machine, by which the firewall knows it.
	Subnet netip.Prefix
}

// Network makes the network of a slot, unless it exists, and returns its name. It is
// kept for the next attempt in the slot: making one takes longer than starting a
// container. The slot is the caller's, on the whole machine: networks of other nodes
// with its addresses are nobody's any more.
func (e *Engine) Network(ctx context.Context, b Bridge) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := "berth-" + strings.ReplaceAll(b.Link, "_", "")
	if found, err := e.api.NetworkInspect(ctx, name, client.NetworkInspectOptions{}); err == nil {
		if hasSubnet(found.Network.IPAM, b.Subnet) {
			return name, nil
		}
		_, _ = e.api.NetworkRemove(ctx, found.Network.ID, client.NetworkRemoveOptions{}) // Else making it fails.
	}
	err := e.makeNetwork(ctx, name, b)
	if err != nil && strings.Contains(err.Error(), "overlaps") {
		if err = e.removeNetworks(ctx, labelSlot+"="+strconv.Itoa(b.Slot)); err == nil {
			err = e.makeNetwork(ctx, name, b)
		}
	}
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		return "", fmt.Errorf("make network of containers: %w", err)
	}
	return name, nil
}

// Internal returns the networks without a way out of an attempt, which Docker Compose makes
// on these bridges, and removes those that an attempt before left in its slot. The slot is
// the caller's, as that of Network.
func (e *Engine) Internal(ctx context.Context, bridges []Bridge) ([]supervise.ContainerNetwork, error) {
	var out []supervise.ContainerNetwork
	for _, b := range bridges {
		out = append(out, supervise.ContainerNetwork{
			Name: "berth-" + strings.ReplaceAll(b.Link, "_", ""), Link: b.Link, Subnet: b.Subnet.String(),
			Labels: map[string]string{labelInternal: strconv.Itoa(b.Slot)},
		})
	}
	if len(bridges) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return out, e.removeNetworks(ctx, labelInternal+"="+strconv.Itoa(bridges[0].Slot))
}

// hasSubnet reports whether a network has the addresses. An earlier version of the node
// gave others.
func hasSubnet(of network.IPAM, subnet netip.Prefix) bool {
	return slices.ContainsFunc(of.Config, func(c network.IPAMConfig) bool { return c.Subnet == subnet })
}

func (e *Engine) makeNetwork(ctx context.Context, name string, b Bridge) error {
	_, err := e.api.NetworkCreate(ctx, name, client.NetworkCreateOptions{
		Driver: "bridge",
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{
			Subnet: b.Subnet, Gateway: b.Subnet.Addr().Next(),
		}}},
		Options: map[string]string{"com.docker.network.bridge.name": b.Link},
		Labels:  map[string]string{labelNode: e.cfg.Node, labelSlot: strconv.Itoa(b.Slot)},
	})
	return err
}

// removeNetworks removes the networks with a label in which there is no container.
func (e *Engine) removeNetworks(ctx context.Context, label string) error {
	return removeNetworks(ctx, e.api, label)
}

func removeNetworks(ctx context.Context, api *client.Client, label string) error {
	found, err := api.NetworkList(ctx, client.NetworkListOptions{Filters: make(client.Filters).Add("label", label)})
	if err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	for _, n := range found.Items {
		_, _ = api.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{}) // It fails while a container uses it.
	}
	return nil
}
