package execution

import (
	"context"
	"io"
	"net/http"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/wire"
	"berth/compute"
)

// files serves what executions left in the directory outputs of their work
// directories.
type files struct {
	executions
}

// Routes returns the routes of the group.
func (g *files) Routes() []edge.Route {
	const all = edge.Root + "/execution/{id}/outputs"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: all, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "The files that an execution left in the directory outputs of its work directory." +
				" They are kept for 30 days, until the execution is deleted or its record is archived.",
			Reply: edge.Type[[]wire.Output](), Handle: g.list,
		},
		{
			Method: http.MethodGet, Path: all + "/{name}", Tag: "Execution Management", Need: edge.NeedCaller, Rest: true,
			Summary: "One of these files, as it is. The name may have slashes. A header Range asks for a part.",
			Accepts: []string{answer.OctetStream}, Handle: g.download,
		},
		{
			Method: http.MethodPost, Path: all + "/store", Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Copy these files to the stored files of the organization, below a prefix, where they stay.",
			Body:    edge.Type[wire.StoreOutputs](), Reply: edge.Type[wire.StoredOutputs](), Handle: g.storeOutputs,
		},
	}
}

// maxShownOutputs is how many outputs a record shows.
const maxShownOutputs = 1000

// outputsOf returns the outputs of e, nil if it has none or they have expired.
func (g *executions) outputsOf(ctx context.Context, r *edge.Request, e *compute.Execution) (*compute.Tree, error) {
	if r.View.FromArchive(e.ID) || !e.HasOutputs(r.View.Now()) {
		return nil, nil
	}
	return g.Config.Trees.Tree(ctx, e.Outputs.Manifest)
}

// shownOutputs returns at most limit outputs as lists show them.
func shownOutputs(e *compute.Execution, tree *compute.Tree, limit int) []wire.Output {
	out := []wire.Output{}
	if tree == nil {
		return out
	}
	at := e.EndedAt
	if at.IsZero() {
		at = e.FinishedAt
	}
	for i := range tree.Entries[:min(len(tree.Entries), limit)] {
		file := &tree.Entries[i]
		out = append(out, wire.Output{Name: file.Path, Size: file.Size, SHA256: file.SHA256, CreatedAt: at})
	}
	return out
}

// addFiles adds the outputs of e to its record, and what is not in them.
func (g *executions) addFiles(r *edge.Request, e *compute.Execution, out *wire.Execution) {
	if e.Outputs == nil {
		return
	}
	if e.Outputs.Warning != "" {
		out.Warnings = append(out.Warnings, e.Outputs.Warning)
	}
	if r.Stale() && !g.Config.Blobs.Has(e.Outputs.Manifest) {
		return
	}
	tree, err := g.outputsOf(r.Ctx, r, e)
	if err != nil {
		r.Log(g.Log).Debug("outputs not readable", "execution", e.ID, "err", err)
		out.Warnings = append(out.Warnings, "The outputs cannot be listed now.")
		return
	}
	out.Outputs = shownOutputs(e, tree, maxShownOutputs)
}

// list answers the outputs of an execution.
func (g *files) list(r *edge.Request) (any, error) {
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	if err := g.AwaitTurn(r); err != nil {
		return nil, err
	}
	tree, err := g.outputsOf(r.Ctx, r, e)
	if err != nil {
		return nil, err
	}
	return shownOutputs(e, tree, compute.MaxOutputs), nil
}

// download answers one output.
func (g *files) download(r *edge.Request) (any, error) {
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	tree, err := g.outputsOf(r.Ctx, r, e)
	if err != nil {
		return nil, err
	}
	if tree == nil {
		return nil, errNoOutput(e)
	}
	file, ok := tree.Entry(r.Params["name"])
	if !ok {
		return nil, errNoOutput(e)
	}
	r.ETag = `"` + file.SHA256.String() + `"`
	if r.IfNoneMatch == r.ETag {
		return answer.NotModified{}, nil
	}
	return answer.File{
		Name: file.Path, Size: file.Size,
		Copy: func(ctx context.Context, w io.Writer, from, length int64) error {
			reader := compute.NewTreeReader(func(hash compute.Hash) ([]byte, error) { return g.Config.Blobs.Get(ctx, hash) })
			return reader.Copy(w, file, tree.ChunkSize, from, length)
		},
	}, nil
}

// errNoOutput says why a file cannot be had.
func errNoOutput(e *compute.Execution) error {
	switch {
	case !e.Status.Terminal():
		return compute.Errorf(compute.CodeNotFound,
			"The execution is %s: outputs are there once it has ended.", e.Status).Named("output_not_found")
	case e.Outputs != nil && e.Outputs.Manifest != (compute.Hash{}):
		return compute.Errorf(compute.CodeNotFound,
			"The execution left no such output, or its outputs have expired: they are kept for 30 days.").
			Named("output_not_found")
	}
	return compute.Errorf(compute.CodeNotFound,
		"The execution left no such output: files in the directory outputs of its work directory are kept.").
		Named("output_not_found")
}
