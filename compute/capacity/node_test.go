package capacity_test

import (
	"slices"
	"testing"

	"berth/compute"
	"berth/compute/capacity"
)

// node returns a node with 8 vCPU and 64 GiB per GPU. used holds the used
// thousandths of each GPU.
func node(gpuType string, used ...int) *compute.Node {
	n := &compute.Node{VCPUMilli: 8000 * int64(len(used)), MemoryMiB: 64 << 10 * int64(len(used))}
	for i, milli := range used {
		n.GPUs = append(n.GPUs, compute.GPU{
			ID: compute.GPUID(rune('a' + i)), Type: gpuType, UsedMilli: milli,
		})
	}
	return n
}

func request(gpuType string, gpus, milli int) compute.Request {
	return compute.Request{GPUType: gpuType, GPUs: gpus, MilliGPU: milli, VCPUMilli: 1000, MemoryMiB: 1 << 10}
}

func TestFitsAndHolds(t *testing.T) {
	failed := node("t4", 0, 0)
	failed.GPUs[1].Health = compute.HealthFailed
	drained := node("t4", 0, 0)
	drained.Drained = true
	two := node("t4", 0, 0, 0)
	two.GPUs[1].Type = "h100"
	tests := []struct {
		name  string
		node  *compute.Node
		q     compute.Request
		fits  bool
		holds int
	}{
		{"idle", node("t4", 0, 0), request("t4", 1, 1000), true, 2},
		{"shares", node("t4", 0, 700), request("t4", 1, 300), true, 4},
		{"several", node("t4", 0, 0, 0, 1), request("t4", 2, 1000), true, 1},
		{"partly used", node("t4", 1, 1), request("t4", 1, 1000), false, 0},
		{"another type", node("t4", 0), request("h100", 1, 1000), false, 0},
		{"failed", failed, request("t4", 2, 1000), false, 0},
		{"drained", drained, request("t4", 1, 1000), false, 2},
		{"two types", two, request("t4", 2, 1000), true, 1},
		{"two types, too few", two, request("h100", 2, 1000), false, 0},
		{"CPU only", node("t4", 0), compute.Request{VCPUMilli: 3000, MemoryMiB: 1 << 10}, true, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kinds := capacity.NewKinds()
			var n capacity.Node
			n.Load(tt.node, kinds)
			q := kinds.Shape(&tt.q)
			if got := n.Fits(&q); got != tt.fits {
				t.Errorf("fits: %v, want %v", got, tt.fits)
			}
			if got := n.Holds(&q); got != tt.holds {
				t.Errorf("holds %d, want %d", got, tt.holds)
			}
		})
	}
}

// TestTakeAndPut checks that Put undoes Take, and that Clear frees everything.
func TestTakeAndPut(t *testing.T) {
	kinds := capacity.NewKinds()
	var n, clone capacity.Node
	n.Load(node("t4", 0, 400), kinds)
	clone.CopyFrom(&n)
	r := request("t4", 1, 600)
	q := kinds.Shape(&r)
	on := clone.Nearest(&q, nil)
	if !slices.Equal(on, []int{0}) {
		t.Fatalf("nearest devices %v, want the idle one", on)
	}
	clone.Take(&q, on)
	if clone.Idle || clone.Whole != 0 || clone.GPUFree != 1000 || n.Devices[0].Free != 1000 {
		t.Errorf("after Take: %+v of %+v", clone, n)
	}
	if gap := clone.Gap(&q, []int{0}); gap.Milli != 200 {
		t.Errorf("%d thousandths are missing, want 200", gap.Milli)
	}
	clone.Put(&q, on)
	if clone.GPUFree != n.GPUFree || clone.VCPU != n.VCPU || !slices.Equal(clone.Devices, n.Devices) {
		t.Errorf("after Put: %+v, want %+v", clone, n)
	}
	clone.Clear()
	if !clone.Idle || clone.Whole != 2 {
		t.Errorf("after Clear: %+v", clone)
	}
}
