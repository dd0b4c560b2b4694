package execution

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/submission"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// uploads serves the uploads of bundles: the files of a working directory.
type uploads struct{ *handler.Core }

// Routes returns the routes of the group.
func (g *uploads) Routes() []edge.Route {
	const one = edge.Root + "/bundles/{id}"
	return []edge.Route{
		{
			Method: http.MethodPost, Path: edge.Root + "/bundles", Tag: "Streaming Execution", Need: edge.NeedCaller,
			Summary: "Begin a bundle of files for the work directory of executions, or go on with one of the same files." +
				" The answer lists the blobs that the organization has not sent before." +
				" A bundle that nothing uses expires after 24 h.",
			Large: true, Raw: true, Body: edge.Type[wire.NewBundle](), Reply: edge.Type[wire.Bundle](), Handle: g.create,
		},
		{
			Method: http.MethodPut, Path: one + "/blobs/{sha256}", Tag: "Streaming Execution", Need: edge.NeedCaller,
			Summary: "Send a blob of a bundle as it is, at most 4 MiB. Sending it again does no harm.",
			Raw:     true, Reply: edge.Type[wire.ReceivedBlob](), Handle: g.receive,
		},
		{
			Method: http.MethodPost, Path: one + "/commit", Tag: "Streaming Execution", Need: edge.NeedCaller,
			Summary: "Make a bundle usable as bundle_id of a start. All of its blobs have to be there.",
			Reply:   edge.Type[wire.CommittedBundle](), Handle: g.commit,
		},
	}
}

// maxSources is how many bundles are searched for blobs that a new one has too.
const maxSources = 16

// create records a bundle. Its manifest is durable before, so that what it names
// is kept from then on.
func (g *uploads) create(r *edge.Request) (any, error) {
	tree, err := wire.DecodeTree(r.Raw())
	if err != nil {
		return nil, err
	}
	if err := tree.Check(g.Config.BundleMax); err != nil {
		return nil, err
	}
	if r.Repeat {
		return g.begun(r, r.First, tree)
	}
	if err := r.View.AllowsPrograms(); err != nil {
		return nil, err
	}
	manifest, err := tree.Encode()
	if err != nil {
		return nil, err
	}
	chunks := slices.Collect(tree.Chunks())
	upload := compute.Upload{
		ID: compute.BundleID{UUID: g.NewID()}, Manifest: sha256.Sum256(manifest),
		Bytes: tree.Bytes(), Files: len(tree.Entries), Chunks: len(chunks),
	}
	have, sources := g.present(r.Ctx, r.View, r.Caller.Actor.Org, chunks)
	upload.Have = upload.With(have)
	if upload.Manifest, err = g.Config.Blobs.Put(r.Ctx, manifest); err != nil {
		return nil, err
	}
	cmd := command.CreateUpload{Op: g.Op(r), Actor: r.Caller.Actor, Upload: upload, Sources: sources}
	result, err := g.ProposeAndSee(r, cmd)
	if err != nil {
		return nil, err
	}
	return g.begun(r, result, tree)
}

// begun answers which blobs of a bundle are missing.
func (g *uploads) begun(r *edge.Request, result command.Result, tree *compute.Tree) (any, error) {
	u, ok := r.View.Upload(r.Caller.Actor.Org, compute.BundleID{UUID: result.ID})
	if !ok {
		return nil, submission.ErrNoBundle()
	}
	out := wire.Bundle{BundleID: u.ID, Missing: []compute.Digest{}}
	number := 0
	for chunk := range tree.Chunks() {
		if !u.Has(number) {
			out.Missing = append(out.Missing, compute.Digest(chunk))
		}
		number++
	}
	return out, nil
}

// present returns the numbers of the chunks that an organization has sent for
// bundles that it still has, and these bundles. That another organization has a
// chunk counts for nothing. A manifest that cannot be read now only means that
// more is sent.
func (g *uploads) present(
	ctx context.Context, view *fsm.View, org compute.OrgID, chunks []compute.Hash,
) (have []int, sources []compute.BundleID) {
	known := slices.Collect(view.Uploads(org))
	slices.SortFunc(known, func(a, b *compute.Upload) int { return int(b.TouchedAt - a.TouchedAt) })
	left := make(map[compute.Hash]int, len(chunks))
	for i, chunk := range chunks {
		left[chunk] = i
	}
	for _, u := range known[:min(len(known), maxSources)] {
		if len(left) == 0 {
			break
		}
		numbers, err := g.Config.Trees.Numbers(ctx, u.Manifest)
		if err != nil {
			g.Log.Debug("manifest not readable", "err", err)
			continue
		}
		before := len(have)
		for chunk, i := range left {
			if number, named := numbers[chunk]; named && u.Has(number) {
				have = append(have, i)
				delete(left, chunk)
			}
		}
		if len(have) > before {
			sources = append(sources, u.ID)
		}
	}
	return have, sources
}

// find returns the bundle that the path names.
func (g *uploads) find(r *edge.Request) (*compute.Upload, error) {
	id, err := compute.ParseBundleID(r.Params["id"])
	if err != nil {
		return nil, submission.ErrNoBundle()
	}
	u, ok := r.View.Upload(r.Caller.Actor.Org, id)
	if !ok {
		return nil, submission.ErrNoBundle()
	}
	return u, nil
}

// receive stores a blob, if its bundle names it.
func (g *uploads) receive(r *edge.Request) (any, error) {
	u, err := g.find(r)
	if err != nil {
		return nil, err
	}
	var name compute.Digest
	if err := name.UnmarshalText([]byte(r.Params["sha256"])); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid,
			"The name of a blob is its SHA-256 in lower-case hexadecimal.").Named("blob_name")
	}
	numbers, err := g.Config.Trees.Numbers(r.Ctx, u.Manifest)
	if err != nil {
		return nil, err
	}
	number, named := numbers[compute.Hash(name)]
	if !named {
		return nil, compute.Errorf(compute.CodeNotFound, "The bundle has no blob %s.", name).Named("blob_unknown")
	}
	data := r.Raw()
	if sha256.Sum256(data) != name {
		return nil, compute.Errorf(compute.CodeInvalid,
			"The %d bytes are not blob %s: the file may have changed while it was sent.", len(data), name).Named("blob_differs")
	}
	if u.Has(number) {
		return wire.ReceivedBlob{Received: len(data)}, nil
	}
	if _, err := g.Config.Blobs.Put(r.Ctx, data); err != nil {
		return nil, err
	}
	_, err = g.Propose(r, command.ReceiveChunks{Actor: r.Caller.Actor, Bundle: u.ID, Chunks: []int{number}})
	return wire.ReceivedBlob{Received: len(data)}, err
}

// commit makes a bundle usable.
func (g *uploads) commit(r *edge.Request) (any, error) {
	u, err := g.find(r)
	if err != nil {
		return nil, err
	}
	if !r.Repeat && !u.Committed {
		if _, err := g.Propose(r, command.CommitUpload{Op: g.Op(r), Actor: r.Caller.Actor, Bundle: u.ID}); err != nil {
			return nil, err
		}
	}
	return wire.CommittedBundle{BundleID: u.ID, Files: u.Files, Size: u.Bytes}, nil
}
