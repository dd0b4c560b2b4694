package prepare

import (
	"strings"

	"berth/compute"
	"berth/node/executor/cgroup"
	"berth/node/executor/policy"
)

// Gaps returns the rules of the sandbox that the kernel of this machine cannot
// enforce. Without root, or on a kernel that is too old, it returns an error that says so.
func Gaps() (gaps []compute.Gap, err error) {
	if err := checkKernel(); err != nil {
		return nil, err
	}
	host, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	if host.Version() == 1 {
		gaps = append(gaps, compute.GapCgroupV1)
	}
	if !host.LimitsSockets() {
		gaps = append(gaps, compute.GapSocketMem)
	}
	if _, abi := policy.Landlock(); abi == 0 {
		gaps = append(gaps, compute.GapNoLandlock)
	}
	return gaps, nil
}

// gapNames returns the names of gaps, which a log would take for bytes.
func gapNames(gaps []compute.Gap) string {
	names := make([]string, len(gaps))
	for i, g := range gaps {
		names[i] = g.String()
	}
	return strings.Join(names, ", ")
}
