package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// A replica needs the memory of its weights and a tenth more, for the context and the
// engine itself.
const needNum, needDen = 11, 10

const (
	maxFitting     = 4 // Profiles that a refusal names.
	maxReplicaGPUs = 8 // As gpu_count allows.
)

// fits refuses a model that is too large for the GPUs of each replica, and has the
// replicas ask for GPUs that are large enough. A model whose size is not known passes,
// and so does one that its engine quantizes or keeps in part outside of the GPUs.
func (g *deployments) fits(r *edge.Request, in *wire.DeploymentCreate, e *compute.Execution) error {
	p, err := compute.ParseProfile(e.Profile)
	if err != nil || !p.IsGPU() || r.Repeat || g.cfg.Inference.Size == nil || slices.ContainsFunc(e.Inference.Args, shrinks) {
		return nil // What is wrong with a profile is said by the state.
	}
	bytes, known := g.cfg.Inference.Size(r.Ctx, e.Org, e.Inference.Engine, in.Model, in.Token)
	if !known {
		return nil
	}
	need := needMiB(bytes)
	e.MinVRAMMiB = max(e.MinVRAMMiB, share(need, p.Count))
	found := devicesOf(r.View)
	if !found.has(p) || found.enough(p, need) {
		return nil
	}
	would := found.fitting(need)
	if would == "" {
		would = "no GPUs of one node have that much memory"
	} else {
		would += " would fit"
	}
	return compute.Errorf(compute.CodeInvalid, "%s needs about %s of GPU memory, and %s has less: %s",
		in.Model, gibibytes(need), p, would).Named("never_fits")
}

// shrinks reports whether an argument changes how much GPU memory the weights take.
func shrinks(arg string) bool {
	return strings.Contains(arg, "quant") || strings.Contains(arg, "gpu-layers") || strings.Contains(arg, "offload")
}

func needMiB(bytes int64) int64 { return (bytes>>20 + 1) * needNum / needDen }

// share returns what each of some GPUs needs.
func share(need int64, gpus int) int64 { return (need + int64(gpus) - 1) / int64(gpus) }

func gibibytes(mib int64) string {
	if mib < 1<<10 {
		return fmt.Sprintf("%d MiB", mib)
	}
	return fmt.Sprintf("%d GiB", (mib+1<<10-1)>>10)
}

// devices are the GPUs of each node.
type devices [][]compute.GPU

func devicesOf(view *fsm.View) (out devices) {
	for n := range view.Nodes() {
		out = append(out, slices.DeleteFunc(slices.Clone(n.GPUs), func(g compute.GPU) bool {
			return g.Health == compute.HealthMissing
		}))
	}
	return out
}

// most returns the largest number of GPUs on one node that a request accepts.
func (d devices) most(q compute.Request) int {
	most := 0
	for _, gpus := range d {
		here := 0
		for i := range gpus {
			if gpus[i].Is(q) {
				here++
			}
		}
		most = max(most, here)
	}
	return most
}

// has reports whether a node has the GPUs of a profile.
func (d devices) has(p compute.Profile) bool { return d.enough(p, 0) }

// enough reports whether a node has the GPUs of a profile with so much memory together.
// They are of one type.
func (d devices) enough(p compute.Profile, need int64) bool {
	types := []string{p.GPUType}
	if p.GPUType == compute.AnyGPU {
		types = d.types()
	}
	least := share(need, p.Count) * compute.WholeGPU / int64(max(p.MilliGPU, 1))
	return slices.ContainsFunc(types, func(kind string) bool {
		return d.most(compute.Request{GPUType: kind, GPUs: p.Count, MIG: p.MIG, MinVRAMMiB: least}) >= p.Count
	})
}

// types returns the types of the GPUs.
func (d devices) types() []string {
	kinds := make(map[string]bool)
	for _, gpus := range d {
		for i := range gpus {
			kinds[gpus[i].Type] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// fitting names the smallest profile of each type that has so much memory.
func (d devices) fitting(need int64) string {
	var names []string
	for _, kind := range d.types() {
		for count := 1; count <= maxReplicaGPUs; count *= 2 {
			p := compute.Profile{GPUType: kind, Count: count, MilliGPU: compute.WholeGPU}
			if d.enough(p, need) {
				names = append(names, p.String())
				break
			}
		}
	}
	return strings.Join(names[:min(len(names), maxFitting)], ", ")
}
