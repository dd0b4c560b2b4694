package docker

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/client"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"

	"berth/composefile"
)

// localRepository begins the names under which the engine keeps what Berth pulled. Under
// names of their own these images are neither taken for the operator's nor replace them.
const localRepository = composefile.PulledHost + "/"

const maxNameBytes = 255 // Bytes of the name of a repository, with its registry.

// localName returns the name under which the engine keeps an image that was pulled. Nodes
// that share an engine have names of their own, since each knows who pulled what.
func (e *Engine) localName(named reference.Named) string {
	sum := sha256.Sum256([]byte(e.cfg.Node + " " + named.String()))
	repository := localRepository + reference.Path(named)
	if len(repository) > maxNameBytes {
		repository = localRepository + "image"
	}
	return fmt.Sprintf("%s:%x", repository, sum[:16])
}

// layerSize is a layer with those below it, and what the layer alone takes on the disk.
type layerSize struct {
	Chain digest.Digest `json:"chain"`
	Size  int64         `json:"size"`
}

// layersOf returns the layers of an image with their sizes on the disk. Images share
// layers, so the sum of their sizes says little. If the engine does not say which layer
// has which size, the image counts as one layer.
func (e *Engine) layersOf(ctx context.Context, id string) ([]layerSize, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := e.api.ImageInspect(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("inspect image: %w", err)
	}
	whole := []layerSize{{Chain: digest.Digest(found.ID), Size: found.Size}}
	history, err := e.api.ImageHistory(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("inspect image: %w", err)
	}
	var sizes []int64 // From the lowest layer up, without steps that made no layer.
	var sum int64
	for i := range history.Items {
		if size := history.Items[len(history.Items)-1-i].Size; size > 0 {
			sizes = append(sizes, size)
			sum += size
		}
	}
	var ids []digest.Digest
	for _, layer := range found.RootFS.Layers {
		ids = append(ids, digest.Digest(layer))
	}
	if len(sizes) != len(ids) || sum != found.Size {
		return whole, nil
	}
	layers := make([]layerSize, len(ids))
	for i, chain := range identity.ChainIDs(ids) {
		layers[i] = layerSize{Chain: chain, Size: sizes[i]}
	}
	return layers, nil
}

// onDisk returns the disk space of images together. A layer that several have counts
// once.
func onDisk(all map[string]*pulled) (sum int64) {
	seen := make(map[digest.Digest]bool)
	for _, p := range all {
		if len(p.Layers) == 0 {
			sum += p.Size
		}
		for _, layer := range p.Layers {
			if !seen[layer.Chain] {
				seen[layer.Chain] = true
				sum += layer.Size
			}
		}
	}
	return sum
}

// keep gives an image that was pulled its name, and returns it.
func (e *Engine) keep(ctx context.Context, from, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := e.api.ImageTag(ctx, client.ImageTagOptions{Source: from, Target: name}); err != nil {
		return fmt.Errorf("name image: %w", err)
	}
	return nil
}

// drop removes a name of an image, and the image with its last name.
func (e *Engine) drop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := e.api.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true})
	if err != nil && !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("remove image: %w", err)
	}
	return nil
}

// dropInterrupted removes the names that pulls of a node that was killed left.
func (e *Engine) dropInterrupted(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := e.api.ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		e.cfg.Logger.Warn("images of interrupted pulls not looked for", "err", err)
		return
	}
	for i := range found.Items {
		for _, name := range append(found.Items[i].RepoTags, found.Items[i].RepoDigests...) {
			host, path, _ := strings.Cut(name, "/")
			if h, _, err := net.SplitHostPort(host); err != nil || h != "127.0.0.1" {
				continue
			}
			if strings.HasPrefix(path, relayDir+"/"+e.cfg.nodeName()+"/") {
				if err := e.drop(ctx, name); err != nil {
					e.cfg.Logger.Warn("image not removed", "err", err)
				}
			}
		}
	}
}
