package docker

import (
	"context"
	"fmt"
	"slices"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// Remove removes every container of an attempt, and what belongs to them. It succeeds
// when there is none.
func (e *Engine) Remove(ctx context.Context, attempt string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return removeAttempt(ctx, e.api, attempt)
}

// removeAttempt removes the containers of an attempt, their networks and their volumes.
func removeAttempt(ctx context.Context, api *client.Client, attempt string) error {
	label := labelAttempt + "=" + attempt
	if err := removeLabelled(ctx, api, label); err != nil {
		return err
	}
	if err := removeNetworks(ctx, api, label); err != nil {
		return err
	}
	found, err := api.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("label", label)})
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, v := range found.Items {
		_, err := api.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true})
		if err != nil && !cerrdefs.IsNotFound(err) {
			return fmt.Errorf("remove volume: %w", err)
		}
	}
	return nil
}

// Left returns the attempts of this node of which there are containers, networks or volumes,
// sorted.
func (e *Engine) Left(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := e.api.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelNode+"="+e.cfg.Node),
	})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	volumes, err := e.api.VolumeList(ctx, client.VolumeListOptions{
		Filters: make(client.Filters).Add("label", labelNode+"="+e.cfg.Node),
	})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	networks, err := e.api.NetworkList(ctx, client.NetworkListOptions{
		Filters: make(client.Filters).Add("label", labelNode+"="+e.cfg.Node).Add("label", labelAttempt),
	})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	var out []string
	for _, n := range networks.Items {
		out = append(out, n.Labels[labelAttempt])
	}
	for _, c := range found.Items {
		out = append(out, c.Labels[labelAttempt])
	}
	for _, v := range volumes.Items {
		out = append(out, v.Labels[labelAttempt])
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// RemoveAll removes every container and every network of the node, when it will not
// start again.
func (e *Engine) RemoveAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := removeLabelled(ctx, e.api, labelNode+"="+e.cfg.Node); err != nil {
		return err
	}
	return e.removeNetworks(ctx, labelNode+"="+e.cfg.Node)
}

// RemoveIdle removes the networks that no container uses.
func (e *Engine) RemoveIdle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return e.removeNetworks(ctx, labelNode+"="+e.cfg.Node)
}

// removeLabelled removes the containers with a label.
func removeLabelled(ctx context.Context, api *client.Client, label string) error {
	found, err := api.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", label),
	})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range found.Items {
		_, err := api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) { // Conflict: it is being removed.
			return fmt.Errorf("remove container: %w", err)
		}
	}
	return nil
}
