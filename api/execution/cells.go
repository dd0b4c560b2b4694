package execution

import (
	"bytes"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
)

// kernelState is the output in which a notebook cell leaves its globals.
const kernelState = ".kernel_state"

// maxKernelState bounds what is returned of it: a start accepts no more.
const maxKernelState = 4 << 20

// addKernelState adds what a notebook cell left for the next one. A GPU selection has
// what the run on the recommended GPU type left. Code may write what it likes there:
// here it is text, and only code reads it again.
func (g *executions) addKernelState(
	r *edge.Request, e *compute.Execution, program *compute.Bundle, out *wire.Execution,
) {
	if program == nil || program.Cell == 0 || !e.Status.Terminal() {
		return
	}
	if e.Kind == compute.KindSelection {
		if e = g.recommendedRun(r, e); e == nil {
			return
		}
	}
	if e.Outputs == nil || r.Stale() && !g.Config.Blobs.Has(e.Outputs.Manifest) {
		return
	}
	tree, err := g.outputsOf(r.Ctx, r, e)
	if err != nil || tree == nil {
		return // The outputs of the record say so.
	}
	file, ok := tree.Entry(kernelState)
	if !ok || file.Size > maxKernelState {
		return
	}
	var text bytes.Buffer
	reader := compute.NewTreeReader(func(hash compute.Hash) ([]byte, error) { return g.Config.Blobs.Get(r.Ctx, hash) })
	if err := reader.Copy(&text, file, tree.ChunkSize, 0, file.Size); err != nil {
		r.Log(g.Log).Debug("kernel state not readable", "execution", e.ID, "err", err)
		out.Warnings = append(out.Warnings, "The state of the cell cannot be read now.")
		return
	}
	state := string(bytes.ToValidUTF8(text.Bytes(), []byte("?")))
	out.KernelState = &state
}

// recommendedRun returns the completed run of the GPU type that a selection
// recommends, nil if there is none.
func (g *executions) recommendedRun(r *edge.Request, parent *compute.Execution) *compute.Execution {
	c := runsOf(r.View, parent)
	verdict := g.Config.Judge(parent.Selection.Objective, c.candidates)
	if verdict.Best < 0 {
		return nil
	}
	for _, run := range c.runs[verdict.Best] {
		if run.Status == compute.StatusCompleted {
			return run
		}
	}
	return nil
}
