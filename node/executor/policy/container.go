package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// ContainerSeccomp returns the seccomp profile of containers in the format of Docker
// engines: the default one of a version that is known, without the calls that sandboxes
// do not have either. Netlink sockets, which the first process of a sandbox counts, have
// no such bound here.
func ContainerSeccomp() (string, error) {
	profile := seccomp.DefaultProfile()
	denied := deniedSyscalls()
	for _, rule := range profile.Syscalls {
		rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool { return slices.Contains(denied, name) })
	}
	for _, family := range allowedFamilies() {
		profile.Syscalls = append(profile.Syscalls, &seccomp.Syscall{
			LinuxSyscall: specs.LinuxSyscall{
				Names: []string{"socket"}, Action: specs.ActAllow,
				Args: []specs.LinuxSeccompArg{{Index: 0, Value: family, Op: specs.OpEqualTo}},
			},
		})
	}
	profile.Syscalls = slices.DeleteFunc(profile.Syscalls, func(s *seccomp.Syscall) bool { return len(s.Names) == 0 })
	text, err := json.Marshal(profile)
	if err != nil {
		return "", fmt.Errorf("encode seccomp profile: %w", err)
	}
	return string(text), nil
}
