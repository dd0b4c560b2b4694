package compute

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// WholeGPU is a whole GPU in thousandths.
const WholeGPU = 1000

// Limits of hardware profiles.
const (
	MaxProfileName = 64   // Bytes.
	MaxVCPUs       = 4096 // vCPUs of a CPU-only profile.
)

// Profile is a parsed hardware profile, which an execution asks for by name:
//
//	cpu | cpu.4x | h100 | gpu.h100 | gpu.h100.2x | gpu.a100.500m | gpu.a100.mig_1g_5gb
type Profile struct {
	GPUType  string `cbor:"1,keyasint,omitempty"` // Lower case; "" for CPU-only profiles.
	Count    int    `cbor:"2,keyasint,omitempty"` // GPUs, or vCPUs of a CPU-only profile.
	MilliGPU int    `cbor:"3,keyasint,omitempty"` // Thousandths of one GPU, 1 to 1,000; 0 without GPU.
	MIG      string `cbor:"4,keyasint,omitempty"` // MIG slice as in "1g_5gb"; "" for none.
}

// ParseProfile parses a name, in any case, with or without "gpu." in front. It
// knows the grammar, not which types exist.
func ParseProfile(name string) (Profile, error) {
	rest, prefixed := strings.CutPrefix(lower(name), "gpu.")
	if len(rest) > MaxProfileName-len("gpu.") {
		return Profile{}, fmt.Errorf("a hardware profile has at most %d bytes", MaxProfileName)
	}
	parts := strings.Split(rest, ".")
	if parts[0] == "gpu" || prefixed && parts[0] == "cpu" {
		return Profile{}, fmt.Errorf("hardware profile %q has no GPU type", name)
	}
	if len(parts) > 2 || !isTypeName(parts[0]) {
		return Profile{}, fmt.Errorf("malformed hardware profile %q", name)
	}
	p := Profile{GPUType: parts[0], Count: 1, MilliGPU: WholeGPU}
	if parts[0] == "cpu" {
		p = Profile{Count: 1}
	}
	if len(parts) == 1 {
		return p, nil
	}
	if err := p.setSize(parts[1]); err != nil {
		return Profile{}, fmt.Errorf("hardware profile %q: %w", name, err)
	}
	return p, nil
}

// setSize reads the part behind the type: 2x, 500m or mig_1g_5gb.
func (p *Profile) setSize(size string) error {
	if slice, ok := strings.CutPrefix(size, "mig_"); ok && p.GPUType != "" {
		if _, err := ParseMIG(slice); err != nil {
			return err
		}
		p.MIG = slice
		return nil
	}
	n, err := strconv.Atoi(strings.TrimRight(size, "xm"))
	if err != nil || n < 1 || strconv.Itoa(n) != size[:len(size)-1] {
		return fmt.Errorf("%q is neither a count such as 2x nor a share such as 500m", size)
	}
	switch {
	case strings.HasSuffix(size, "x") && p.GPUType == "" && n <= MaxVCPUs:
		p.Count = n
	case strings.HasSuffix(size, "x") && p.GPUType == "":
		return fmt.Errorf("at most %d vCPUs", MaxVCPUs)
	case strings.HasSuffix(size, "x") && (n == 1 || n == 2 || n == 4 || n == 8):
		p.Count = n
	case strings.HasSuffix(size, "x"):
		return fmt.Errorf("GPUs come as 1x, 2x, 4x or 8x")
	case p.GPUType != "" && n < WholeGPU:
		p.MilliGPU = n
	default:
		return fmt.Errorf("a share is of one GPU, 1m to 999m")
	}
	return nil
}

// lower returns s with its ASCII letters in lower case. Other letters stay, so
// that none turns into an ASCII letter, as the Kelvin sign would.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

// isTypeName reports whether s matches [a-z0-9_]+.
func isTypeName(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' {
			return false
		}
	}
	return s != ""
}

// String returns the canonical name: with "gpu." in front of GPU types, and
// without a size for one whole GPU or one vCPU.
func (p Profile) String() string {
	name := "cpu"
	if p.GPUType != "" {
		name = "gpu." + p.GPUType
	}
	switch {
	case p.MIG != "":
		return name + ".mig_" + p.MIG
	case p.GPUType != "" && p.MilliGPU < WholeGPU:
		return fmt.Sprintf("%s.%dm", name, p.MilliGPU)
	case p.Count > 1:
		return fmt.Sprintf("%s.%dx", name, p.Count)
	}
	return name
}

// Kind returns the kind of device that the profile asks for: a GPU type, as in
// "a100", or a MIG slice of one, as in "a100.mig_1g_5gb"; "" without GPU.
func (p Profile) Kind() string {
	if p.MIG == "" {
		return p.GPUType
	}
	return p.GPUType + ".mig_" + p.MIG
}

// IsGPU reports whether the profile asks for a GPU.
func (p Profile) IsGPU() bool { return p.GPUType != "" }

// Request is the resources that an execution needs from a node, resolved from
// its profile at submit. Several GPUs are of one node and of one kind.
type Request struct {
	// GPUType is the requested type. It is "" for CPU-only work, and if AnyOf
	// lists the accepted types or every type is accepted.
	GPUType string `cbor:"1,keyasint,omitempty"`

	GPUs      int    `cbor:"2,keyasint,omitempty"` // Number of GPUs, each with MilliGPU.
	MilliGPU  int    `cbor:"3,keyasint,omitempty"` // Thousandths of each GPU, and of its memory.
	MIG       string `cbor:"4,keyasint,omitempty"` // The slice of each GPU, "" for unsliced GPUs.
	VCPUMilli int64  `cbor:"5,keyasint,omitempty"` // Thousandths of a vCPU.
	MemoryMiB int64  `cbor:"6,keyasint,omitempty"`

	// AnyOf are the accepted GPU types, each once: sorted unless Ranked. With GPUs above 0 and
	// no GPUType, an empty AnyOf accepts every type.
	AnyOf []string `cbor:"7,keyasint,omitempty"`

	// MinVRAMMiB is the least memory of each device, as EnoughVRAM counts it; 0
	// for any.
	MinVRAMMiB int64 `cbor:"8,keyasint,omitempty"`

	// Ranked has AnyOf in the order of preference, the best first, and not sorted.
	Ranked bool `cbor:"9,keyasint,omitempty"`

	ScratchMiB int64   `cbor:"10,keyasint,omitempty"` // Disk space for scratch; 0 for the node's default.
	Needs      []Offer `cbor:"11,keyasint,omitempty"` // Offers that the node must have, sorted.
}

// WithoutEnvironments returns the needs of r that are not environments.
func (r *Request) WithoutEnvironments() []Offer {
	return slices.DeleteFunc(slices.Clone(r.Needs), func(need Offer) bool {
		_, is := need.Environment()
		return is
	})
}

// IsGPU reports whether r asks for GPUs.
func (r *Request) IsGPU() bool { return r.GPUs > 0 || r.GPUType != "" }

// Types returns the accepted GPU types as one string: the type, those of AnyOf
// joined with "|", "*" for any, and "" for CPU-only work.
func (r *Request) Types() string {
	switch {
	case r.GPUType != "" || !r.IsGPU():
		return r.GPUType
	case len(r.AnyOf) == 0:
		return "*"
	}
	return strings.Join(r.AnyOf, "|")
}

// Key returns a string that is equal for two requests if and only if they ask
// for the same.
func (r *Request) Key() string {
	b := make([]byte, 0, 64)
	b = append(b, r.Types()...)
	b = append(append(b, '/'), r.MIG...)
	for _, n := range []int64{int64(r.GPUs), int64(r.MilliGPU), r.VCPUMilli, r.MemoryMiB, r.ScratchMiB} {
		b = strconv.AppendInt(append(b, '/'), n, 10)
	}
	if r.MinVRAMMiB > 0 {
		b = strconv.AppendInt(append(b, "/vram"...), r.MinVRAMMiB, 10)
	}
	if r.Ranked {
		b = append(b, "/ranked"...)
	}
	for _, need := range r.Needs {
		b = append(append(b, '/'), need...)
	}
	return string(b)
}
