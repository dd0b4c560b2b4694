package deployment

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
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
	maxOffloadGiB  = 1 << 20
)

// fits refuses a model that is too large for the GPUs of each replica, and has the
// replicas ask for GPUs that are large enough. A model of unknown size passes and is
// taken to need unsized MiB. A model also passes if it is not known which part of it
// its engine has on the GPUs.
func (g *deployments) fits(r *edge.Request, in *wire.DeploymentCreate, e *compute.Execution, unsized int64) error {
	p, _ := compute.ParseProfile(e.Profile) // The state refuses a profile that is not valid.
	args, known := memoryArgsOf(e.Inference.Args)
	if !p.IsGPU() || r.Repeat || g.Config.Inference.Size == nil || !known {
		return nil
	}
	bytes, known := g.Config.Inference.Size(r.Ctx, handler.Weights{
		Org: e.Org, Engine: e.Inference.Engine, Model: in.Model, Token: in.Token, Quantization: args.quantization,
		DType: args.dtype,
	})
	if !known {
		e.MinVRAMMiB = max(e.MinVRAMMiB, unsized)
		return nil
	}
	need := demand{mib: needMiB(bytes), offloadMiB: args.offloadMiB}
	e.MinVRAMMiB = max(e.MinVRAMMiB, need.share(p.Count))
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
	with := ""
	if args != (memoryArgs{}) {
		with = " with these vllm_args"
	}
	return compute.Errorf(compute.CodeInvalid, "%s needs about %s of GPU memory%s, and %s has less: %s",
		in.Model, gibibytes(need.share(p.Count)*int64(p.Count)), with, p, would).Named("never_fits")
}

// memoryArgs are the arguments of an engine by which weights take more or less GPU memory.
type memoryArgs struct {
	quantization string
	dtype        string
	offloadMiB   int64 // Weights of each GPU that stay in the memory of the host.
}

// memoryArgsOf reads the arguments of an engine. It reports false if they leave open how
// much of the weights is on the GPUs.
func memoryArgsOf(args []string) (out memoryArgs, known bool) {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch {
		case name == "--quantization":
			out.quantization = value
		case name == "--dtype":
			out.dtype = value
		case name == "--cpu-offload-gb": // GiB, as vLLM and SGLang count.
			gib, err := strconv.ParseFloat(value, 64)
			if err != nil || gib < 0 || gib > maxOffloadGiB {
				return out, false
			}
			out.offloadMiB = int64(gib * 1024)
		case shrinks(name):
			return out, false
		}
	}
	return out, true
}

// shrinks reports whether an argument changes how much GPU memory the weights take, in
// a way that it does not say itself: the size of a layer is not known.
func shrinks(name string) bool {
	return strings.HasPrefix(name, "-") &&
		(strings.Contains(name, "quant") || strings.Contains(name, "gpu-layers") || strings.Contains(name, "offload"))
}

func needMiB(bytes int64) int64 { return (bytes>>20 + 1) * needNum / needDen }

// demand is the memory that a replica needs on its GPUs.
type demand struct {
	mib        int64
	offloadMiB int64 // Subtracted from the need of each GPU.
}

// share returns what each of some GPUs needs.
func (d demand) share(gpus int) int64 {
	return max((d.mib+int64(gpus)-1)/int64(gpus)-d.offloadMiB, 0)
}

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
func (d devices) has(p compute.Profile) bool { return d.enough(p, demand{}) }

// enough reports whether a node has the GPUs of a profile with so much memory together.
// They are of one type.
func (d devices) enough(p compute.Profile, need demand) bool {
	types := []string{p.GPUType}
	if p.GPUType == compute.AnyGPU {
		types = d.types()
	}
	least := need.share(p.Count) * compute.WholeGPU / int64(max(p.MilliGPU, 1))
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
func (d devices) fitting(need demand) string {
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
