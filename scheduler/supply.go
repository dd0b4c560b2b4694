package scheduler

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"

	"berth/compute"
)

// familyCount is a family and how many of its nodes take work.
type familyCount struct {
	family
	nodes int
}

// sameHardware reports whether two records of a node offer the same when idle.
func sameHardware(a, b *compute.Node) bool {
	if a.ID != b.ID || a.VCPUMilli != b.VCPUMilli || a.MemoryMiB != b.MemoryMiB ||
		len(a.GPUs) != len(b.GPUs) || a.Schedulable() != b.Schedulable() ||
		a.ScratchMiB != b.ScratchMiB || !sameOffers(a.Offers, b.Offers) ||
		(a.EngineFault == "") != (b.EngineFault == "") {
		return false
	}
	for i := range a.GPUs {
		x, y := &a.GPUs[i], &b.GPUs[i]
		if x.Type != y.Type || x.MIG != y.MIG || x.Health != y.Health || x.Island != y.Island || x.VRAMMiB != y.VRAMMiB {
			return false
		}
	}
	return true
}

// sameOffers reports whether two nodes offer the same but for images, which decide
// nothing about where a shape fits.
func sameOffers(a, b []compute.Offer) bool {
	needed := func(offers []compute.Offer) []compute.Offer {
		return slices.DeleteFunc(slices.Clone(offers), compute.Offer.Image)
	}
	return slices.Equal(a, b) || slices.Equal(needed(a), needed(b))
}

// hardwareOf returns the number of the hardware of s.
func (b *board) hardwareOf(s *slot) int {
	key := strconv.AppendInt(nil, s.Record.VCPUMilli, 10)
	key = strconv.AppendInt(append(key, ' '), s.Record.MemoryMiB, 10)
	key = strconv.AppendInt(append(key, ' '), s.Record.ScratchMiB, 10)
	key = strconv.AppendBool(append(key, ' '), s.Open)
	key = strconv.AppendBool(append(key, ' '), s.Record.EngineFault == "")
	for _, offer := range s.Record.Offers {
		if !offer.Image() {
			key = append(append(key, ' '), offer...)
		}
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		key = fmt.Appendf(key, " %d,%d,%d,%d,%t", d.Kind, d.VRAM, d.Island, d.Health, d.Closed)
	}
	n, known := b.hardware[string(key)]
	if !known {
		n = len(b.hardware)
		b.hardware[string(key)] = n
		b.equal = append(b.equal, memo{})
	}
	return n
}

// count adds the hardware of s to the supply, or removes it.
func (b *board) count(s *slot, sign int) {
	for len(b.gpu) < len(b.types.Names) {
		b.gpu = append(b.gpu, 0)
	}
	if !s.Open {
		return
	}
	f := family{
		vcpu: coarse(s.Record.VCPUMilli), memory: coarse(s.Record.MemoryMiB),
		counts: make([]int, len(b.types.Names)),
	}
	devices := 0
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Usable() {
			b.gpu[d.Kind] += int64(sign * d.Size)
			f.counts[d.Kind]++
			devices++
		}
	}
	if devices == 0 {
		b.otherVCPU += int64(sign) * s.Record.VCPUMilli
		b.otherMemory += int64(sign) * s.Record.MemoryMiB
		return
	}
	b.vcpu += int64(sign) * s.Record.VCPUMilli
	b.memory += int64(sign) * s.Record.MemoryMiB
	for kind, n := range f.counts {
		if n > 0 {
			name := b.types.Names[kind]
			f.devices += fmt.Sprintf("%d %s %s,", n, name.GPUType, name.Slice)
		}
	}
	key := fmt.Sprint(f.vcpu, f.memory, f.devices)
	known := b.families[key]
	if known == nil {
		known = &familyCount{family: f}
		b.families[key] = known
	}
	if known.nodes += sign; known.nodes == 0 {
		delete(b.families, key)
	}
}

// coarse returns n rounded up to six binary digits.
func coarse(n int64) int64 {
	shift := max(bits.Len64(uint64(n))-6, 0)
	return (n + 1<<shift - 1) >> shift << shift
}

// freeIf returns the free thousandths of a GPU of s, 0 if it takes no work.
func (s *slot) freeIf() int64 {
	if !s.Open {
		return 0
	}
	return s.GPUFree
}

// addFree adds the free GPU of s to the sums.
func (b *board) addFree(s *slot) {
	s.usable = 0
	if s.Open {
		s.usable = s.wholeUsable()
	}
	b.free, b.usable = b.free+s.freeIf(), b.usable+s.usable
}

// wholeUsable returns the thousandths of a GPU that could be given as whole
// devices with their share of the node.
func (s *slot) wholeUsable() int64 {
	devices, whole, worth := int64(0), int64(0), int64(0)
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Usable() {
			devices++
			if d.Free == compute.WholeGPU {
				whole++
				worth += int64(d.Size)
			}
		}
	}
	fed := whole
	if s.Record.VCPUMilli > 0 {
		fed = min(fed, max(s.VCPU, 0)*devices/s.Record.VCPUMilli)
	}
	if s.Record.MemoryMiB > 0 {
		fed = min(fed, max(s.Memory, 0)*devices/s.Record.MemoryMiB)
	}
	if fed == whole {
		return worth
	}
	return worth * fed / whole
}

// fragmentation returns the share of the free GPU on nodes that take work that
// cannot be given as whole GPUs. It is 0 when none is free.
func (b *board) fragmentation() float64 {
	if b.free == 0 {
		return 0
	}
	return float64(b.free-b.usable) / float64(b.free)
}
