package packing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"berth/bench/trace"
)

// maxVary is the largest factor of a change.
const maxVary = 100

// forTypes is the random source for the models that pods name. It does not
// depend on the seed: a variant is one trace.
const forTypes uint64 = 33

// Variants returns changes of a trace, in the syntax of Config.Vary, that show
// where a policy loses. Some kinds of work come more often, requests have more
// vCPU or memory, pods name models, or several of these combine.
func Variants() []string {
	return []string{
		"", "cpu-only=0", "cpu-only=1.5", "cpu-only=2", "cpu-only=2.5", "cpu-only=3", "cpu-only=4",
		"shares=2", "shares=5", "shares=2,cpu-only=2", "whole=0", "whole=0.3,cpu-only=1.5",
		"multi-gpu=20", "multi-gpu=10,cpu-only=5", "vcpu=1.25", "vcpu=1.5", "vcpu=1.2,cpu-only=2",
		"memory=1.5", "memory=2", "memory=3", "memory=1.5,cpu-only=2", "memory=2,cpu-only=3",
		"types=0.2", "types=0.33", "types=0.6", "types=0.33,cpu-only=3", "types=0.33,memory=2", "types=0.33,multi-gpu=20",
	}
}

// vary returns the pods of a trace changed by spec: names with numbers, as in
// "cpu-only=3,types=0.33", applied in order.
func vary(nodes []trace.Node, pods []trace.Pod, spec string) ([]trace.Pod, error) {
	for change := range strings.SplitSeq(spec, ",") {
		if change == "" {
			continue
		}
		name, number, _ := strings.Cut(strings.TrimSpace(change), "=")
		factor, err := strconv.ParseFloat(number, 64)
		if err != nil || !(factor >= 0 && factor <= maxVary) {
			return nil, fmt.Errorf("%q: write a name and a number from 0 to %d, as cpu-only=3", change, maxVary)
		}
		if pods, err = varyOnce(nodes, pods, name, factor); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

func varyOnce(nodes []trace.Node, pods []trace.Pod, name string, factor float64) ([]trace.Pod, error) {
	if is, ok := sorts()[name]; ok {
		return repeat(pods, is, factor), nil
	}
	out := slices.Clone(pods)
	switch name {
	case "vcpu":
		for i := range out {
			if out[i].GPUs > 0 {
				out[i].CPUMilli = int64(float64(out[i].CPUMilli) * factor)
			}
		}
	case "memory":
		for i := range out {
			out[i].MemoryMiB = int64(float64(out[i].MemoryMiB) * factor)
		}
	case "types":
		if factor > 1 {
			return nil, fmt.Errorf("types=%g: it is the part of the pods with GPUs that name a model, at most 1", factor)
		}
		nameTypes(nodes, out, factor)
	default:
		return nil, fmt.Errorf(
			"nothing is called %q; there are cpu-only, shares, whole, multi-gpu, vcpu, memory and types", name)
	}
	return out, nil
}

// sorts returns the kinds of work whose frequency can change.
func sorts() map[string]func(*trace.Pod) bool {
	return map[string]func(*trace.Pod) bool{
		"cpu-only":  func(p *trace.Pod) bool { return p.GPUs == 0 },
		"shares":    func(p *trace.Pod) bool { return p.GPUs == 1 && p.GPUMilli < trace.WholeGPU },
		"whole":     func(p *trace.Pod) bool { return p.GPUs > 0 && p.GPUMilli == trace.WholeGPU },
		"multi-gpu": func(p *trace.Pod) bool { return p.GPUs > 1 },
	}
}

// repeat returns pods in order, with the pods of a kind repeated times as
// often.
func repeat(pods []trace.Pod, is func(*trace.Pod) bool, times float64) []trace.Pod {
	var out []trace.Pod
	seen := 0.0
	for i := range pods {
		n := 1
		if is(&pods[i]) {
			n = int((seen+1)*times+1e-9) - int(seen*times+1e-9)
			seen++
		}
		for range n {
			out = append(out, pods[i])
		}
	}
	return out
}

// nameTypes makes a share of the pods with GPUs request the model of a node
// that could host them.
func nameTypes(nodes []trace.Node, pods []trace.Pod, part float64) {
	random := source(forTypes, 0)
	for i := range pods {
		if p := &pods[i]; p.GPUs > 0 && random.Float64() < part {
			if n := someHost(nodes, p, random); n != nil {
				p.Models = []string{n.Model}
			}
		}
	}
}

// someHost returns a random node that could host a pod when empty, or nil if a
// thousand tries find none.
func someHost(nodes []trace.Node, p *trace.Pod, random *rand.Rand) *trace.Node {
	for range 1000 {
		n := &nodes[random.IntN(len(nodes))]
		if n.GPUs >= p.GPUs && n.CPUMilli >= p.CPUMilli && n.MemoryMiB >= p.MemoryMiB {
			return n
		}
	}
	return nil
}
