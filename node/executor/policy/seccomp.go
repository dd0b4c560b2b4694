package policy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	seccompbpf "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// deniedSyscalls returns the system calls that the list of container runtimes allows
// and that an execution does not need. Each was once part of an escape, or, like
// sync and syncfs, makes the machine's disks work for code that has none.
func deniedSyscalls() []string {
	return []string{
		"socket", // Allowed below, for the usual families.
		"ptrace", "process_vm_readv", "process_vm_writev",
		"name_to_handle_at", "fanotify_mark", "memfd_secret", "map_shadow_stack",
		"sync", "syncfs", "adjtimex", "clock_adjtime", "listmount", "statmount",
	}
}

// allowedFamilies returns the socket families that code may use.
func allowedFamilies() []uint64 {
	return []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
}

const (
	offsetNumber = 0  // The system call's number in struct seccomp_data.
	offsetArch   = 4  // Its architecture.
	offsetArgs   = 16 // Its arguments, 8 bytes each, the low half first.
	x32Bit       = 0x40000000
)

// Seccomp returns the program as an array of struct sock_filter. System calls that
// are not on the list fail with EPERM. clone3, and calls newer than the list, fail
// with ENOSYS so that the C library falls back to others. A call of a foreign
// architecture kills the process.
func Seccomp() ([]byte, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	profile, err := seccomp.GetDefaultProfile(&specs.Spec{Process: &specs.Process{
		Capabilities: &specs.LinuxCapabilities{},
	}})
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	policy := seccompbpf.Policy{DefaultAction: seccompbpf.ActionErrno}
	policy.Syscalls = []seccompbpf.SyscallGroup{allowed(profile, info)}
	rules, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	program, err := bpf.Assemble(append(prologue(info), rules...))
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	return encode(program)
}

// allowed returns the group of system calls that are allowed.
func allowed(profile *specs.LinuxSeccomp, info *arch.Info) seccompbpf.SyscallGroup {
	group := seccompbpf.SyscallGroup{Action: seccompbpf.ActionAllow}
	for _, call := range profile.Syscalls {
		if call.Action != specs.ActAllow {
			continue
		}
		for _, name := range call.Names {
			if _, known := info.SyscallNames[name]; !known || slices.Contains(deniedSyscalls(), name) {
				continue
			}
			if len(call.Args) == 0 {
				if !slices.Contains(group.Names, name) {
					group.Names = append(group.Names, name)
				}
				continue
			}
			group.NamesWithCondtions = append(group.NamesWithCondtions,
				seccompbpf.NameWithConditions{Name: name, Conditions: conditions(call.Args)})
		}
	}
	for _, family := range allowedFamilies() {
		group.NamesWithCondtions = append(group.NamesWithCondtions, seccompbpf.NameWithConditions{
			Name:       "socket",
			Conditions: seccompbpf.ArgumentConditions{{Operation: seccompbpf.Equal, Value: family}},
		})
	}
	return group
}

// conditions translates the two operators that the list uses. Any other operator
// becomes a condition that never holds, so that an unknown one allows nothing.
func conditions(args []specs.LinuxSeccompArg) seccompbpf.ArgumentConditions {
	var list seccompbpf.ArgumentConditions
	for _, arg := range args {
		c := seccompbpf.Condition{Argument: uint32(arg.Index)}
		switch {
		case arg.Op == specs.OpEqualTo:
			c.Operation, c.Value = seccompbpf.Equal, arg.Value
		case arg.Op == specs.OpMaskedEqual && arg.ValueTwo == 0:
			c.Operation, c.Value = seccompbpf.BitsNotSet, arg.Value
		default:
			c.Operation, c.Value = seccompbpf.LessThan, 0
		}
		list = append(list, c)
	}
	return list
}

// prologue returns the instructions before the list. They kill a process that
// makes a call of another architecture, answer ENOSYS to clone3 and to calls
// newer than the list, and make the refusals.
func prologue(info *arch.Info) []bpf.Instruction {
	kill := bpf.RetConstant{Val: uint32(seccompbpf.ActionKillProcess)}
	missing := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		kill,
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
	}
	if info.ID == arch.X86_64.ID {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1}, kill)
	}
	newest := 0
	for number := range info.SyscallNumbers {
		newest = max(newest, number)
	}
	program = append(program,
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: uint32(newest), SkipTrue: 1}, missing,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(info.SyscallNames["clone3"]), SkipTrue: 1}, missing)
	return append(program, refuse(info)...)
}

// encode encodes the program as the kernel reads it.
func encode(program []bpf.RawInstruction) ([]byte, error) {
	var buf bytes.Buffer
	for _, instruction := range program {
		filter := unix.SockFilter{Code: instruction.Op, Jt: instruction.Jt, Jf: instruction.Jf, K: instruction.K}
		if err := binary.Write(&buf, binary.NativeEndian, filter); err != nil {
			return nil, fmt.Errorf("assemble filter: %w", err)
		}
	}
	return buf.Bytes(), nil
}
