package docker

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
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
// container.
func (e *Engine) Network(ctx context.Context, b Bridge) (string, error) {
	e.mu.Lock()
	name, ok := e.networks[b.Slot]
	e.mu.Unlock()
	if ok {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name = "berth-" + strings.ReplaceAll(b.Link, "_", "")
	_, err := e.api.NetworkCreate(ctx, name, client.NetworkCreateOptions{
		Driver: "bridge",
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{
			Subnet: b.Subnet, Gateway: b.Subnet.Addr().Next(),
		}}},
		Options: map[string]string{"com.docker.network.bridge.name": b.Link},
		Labels:  map[string]string{labelNode: e.cfg.Node},
	})
	if err != nil && !cerrdefs.IsConflict(err) && !strings.Contains(err.Error(), "already exists") {
		return "", fmt.Errorf("make network of containers: %w", err)
	}
	e.mu.Lock()
	e.networks[b.Slot] = name
	e.mu.Unlock()
	return name, nil
}

// removeNetworks removes the networks of this node in which there is no container.
func (e *Engine) removeNetworks(ctx context.Context) error {
	found, err := e.api.NetworkList(ctx, client.NetworkListOptions{
		Filters: make(client.Filters).Add("label", labelNode+"="+e.cfg.Node),
	})
	if err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range found.Items {
		if _, err := e.api.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{}); err != nil {
			continue // A container uses it.
		}
		for slot, name := range e.networks {
			if name == n.Name {
				delete(e.networks, slot)
			}
		}
	}
	return nil
}
