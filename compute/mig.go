package compute

import (
	"fmt"
	"strconv"
	"strings"
)

// MIGSlice is a parsed name of a MIG slice.
type MIGSlice struct {
	Compute   int  // Its parts of the device's compute: 1 of "1g_5gb".
	MemoryGiB int  // Its memory, in the driver's rounding: 5 of "1g_5gb".
	Shared    bool // One of several compute instances of a GPU instance, whose memory it shares.
}

// ParseMIG parses the name of a slice. Names are the driver's with underscores
// in place of characters that a hardware profile cannot contain: "1g_5gb" for
// "1g.5gb", "1g_5gb_me" for "1g.5gb+me", "1c_2g_10gb" for "1c.2g.10gb".
func ParseMIG(name string) (MIGSlice, error) {
	fault := fmt.Errorf("%q is not a MIG slice such as 1g_5gb", name)
	parts := strings.Split(name, "_")
	var s MIGSlice
	var own int
	if n, ok := sized(parts[0], "c"); ok {
		own, s.Shared, parts = n, true, parts[1:]
	}
	if len(parts) < 2 {
		return MIGSlice{}, fault
	}
	n, isCompute := sized(parts[0], "g")
	gib, isMemory := sized(parts[1], "gb")
	if !isCompute || !isMemory || own > n {
		return MIGSlice{}, fault
	}
	for _, attribute := range parts[2:] {
		if attribute == "" || !isTypeName(attribute) {
			return MIGSlice{}, fault
		}
	}
	s.Compute, s.MemoryGiB = n, gib
	if s.Shared {
		s.Compute = own
	}
	return s, nil
}

// sized returns the number in front of the unit, 1 to 9999.
func sized(text, unit string) (int, bool) {
	digits, found := strings.CutSuffix(text, unit)
	n, err := strconv.Atoi(digits)
	return n, found && err == nil && n >= 1 && n <= 9999 && strconv.Itoa(n) == digits
}

// MIGName converts the driver's name of a slice to the form of a hardware
// profile.
func MIGName(profile string) string {
	return strings.NewReplacer(".", "_", "+", "_", "-", "_", " ", "_").Replace(lower(profile))
}

// MIGProfile returns the driver's name of a slice. It is the inverse of
// MIGName.
func MIGProfile(name string) string {
	parts := strings.Split(name, "_")
	sizes := 2
	if _, ok := sized(parts[0], "c"); ok {
		sizes = 3
	}
	sizes = min(sizes, len(parts))
	profile := strings.Join(parts[:sizes], ".")
	for _, attribute := range parts[sizes:] {
		profile += "+" + attribute
	}
	return profile
}

// MIGParts returns the number of parts into which a device of the type divides
// its compute: 7, or 4 on the smaller ones (NVIDIA MIG user guide, "Supported
// MIG Profiles").
func MIGParts(gpuType string) int {
	if gpuType == "a30" || strings.HasPrefix(gpuType, "rtx_pro_6000") {
		return 4
	}
	return 7
}

// SliceMilli returns the size of a slice of a device of the type in thousandths
// of a GPU: its part of the compute, rounded down. It returns a whole GPU for
// "" and for a name that cannot be parsed.
func SliceMilli(gpuType, slice string) int {
	if slice == "" {
		return WholeGPU
	}
	s, err := ParseMIG(slice)
	if err != nil {
		return WholeGPU
	}
	return min(s.Compute*WholeGPU/MIGParts(gpuType), WholeGPU)
}
