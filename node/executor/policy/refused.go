package policy

import (
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// argument is a condition on the low 32 bits of an argument of a system call. The
// kernel ignores the other bits of arguments of type int.
type argument struct {
	index  uint32
	high   bool   // The high 32 bits instead.
	mask   uint32 // Bits that count; 0 for all.
	not    bool   // The condition holds for all values but these.
	values []uint32
}

// refusal is a use of an allowed system call that has no effect, or another one. All
// conditions must hold.
type refusal struct {
	call   string
	args   []argument
	answer uint32 // An action of seccomp.
}

const (
	askFirst = unix.SECCOMP_RET_USER_NOTIF // The sandbox's first process answers.
	pretend  = unix.SECCOMP_RET_ERRNO      // The call returns 0 and does nothing.
)

func fail(err unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(err) }

const (
	socketTypeMask = 0xf // Without SOCK_NONBLOCK and SOCK_CLOEXEC.

	soAttachReuseportCBPF = 51
	soAttachReuseportEBPF = 52
)

// refusals returns the uses of system calls that are refused. Through them code would
// take resources that the whole machine shares and no limit of an execution bounds:
//
//   - A socket of a type or protocol that the kernel does not have makes it run
//     modprobe, as root and outside of the execution's limits, and may load a
//     module. Socketpair makes sockets of every family. A line discipline is a module.
//   - Filters of sockets and of system calls are compiled into memory of which the
//     machine has a fixed amount. Without it no sandbox can start.
//   - Nobody is charged for what waits in netlink sockets. The first process of the
//     sandbox makes a few of them.
//   - A limit of 0 for core dumps still starts the machine's program for them, as root
//     and outside of the execution's limits. Only the limit that the sandbox sets, a
//     byte, prevents that, so it stays.
//   - The number of contexts for asynchronous I/O is fixed for the machine.
//
// The errors are those of a kernel that lacks the feature, which programs handle.
func refusals() []refusal {
	family := func(values ...uint32) argument { return argument{index: 0, values: values} }
	kind := func(values ...uint32) argument {
		return argument{index: 1, mask: socketTypeMask, values: values}
	}
	protocolNot := func(values ...uint32) argument { return argument{index: 2, not: true, values: values} }
	inet, stream, datagram := family(unix.AF_INET, unix.AF_INET6), kind(unix.SOCK_STREAM), kind(unix.SOCK_DGRAM)
	otherKind := argument{
		index: 1, mask: socketTypeMask, not: true, values: []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW},
	}
	coreLimit := argument{index: 1, values: []uint32{unix.RLIMIT_CORE}}
	return []refusal{
		{"socket", []argument{inet, otherKind}, fail(unix.ESOCKTNOSUPPORT)},
		{"socket", []argument{inet, stream, protocolNot(0, unix.IPPROTO_TCP)}, fail(unix.EPROTONOSUPPORT)},
		{
			"socket",
			[]argument{family(unix.AF_INET), datagram, protocolNot(0, unix.IPPROTO_UDP, unix.IPPROTO_ICMP)},
			fail(unix.EPROTONOSUPPORT),
		},
		{
			"socket",
			[]argument{family(unix.AF_INET6), datagram, protocolNot(0, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6)},
			fail(unix.EPROTONOSUPPORT),
		},
		{"socket", []argument{family(unix.AF_NETLINK), protocolNot(unix.NETLINK_ROUTE)}, fail(unix.EPROTONOSUPPORT)},
		{"socket", []argument{family(unix.AF_NETLINK)}, askFirst},
		{"socketpair", []argument{{index: 0, not: true, values: []uint32{unix.AF_UNIX}}}, fail(unix.EAFNOSUPPORT)},
		{"ioctl", []argument{{index: 1, values: []uint32{unix.TIOCSETD}}}, fail(unix.EPERM)},
		{
			"setsockopt", []argument{
				{index: 1, values: []uint32{unix.SOL_SOCKET}},
				{index: 2, values: []uint32{
					unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, soAttachReuseportCBPF, soAttachReuseportEBPF,
				}},
			}, fail(unix.EPERM),
		},
		{"prctl", []argument{{index: 0, values: []uint32{unix.PR_SET_SECCOMP}}}, fail(unix.EINVAL)},
		{"seccomp", nil, fail(unix.ENOSYS)},
		{"io_setup", nil, fail(unix.ENOSYS)},
		{"setrlimit", []argument{{index: 0, values: []uint32{unix.RLIMIT_CORE}}}, pretend},
		{"prlimit64", []argument{coreLimit, {index: 2, not: true, values: []uint32{0}}}, pretend},
		{"prlimit64", []argument{coreLimit, {index: 2, high: true, not: true, values: []uint32{0}}}, pretend},
	}
}

// refuse returns the instructions of the refusals. A call that none of them
// matches continues after the last one.
func refuse(info *arch.Info) []bpf.Instruction {
	var program []bpf.Instruction
	for _, r := range refusals() {
		if number, known := info.SyscallNames[r.call]; known {
			program = append(program, r.instructions(uint32(number))...)
		}
	}
	return program
}

// instructions returns the refusal's instructions. They are made from the last one to
// the first, because each jump to the end skips those that follow it.
func (r refusal) instructions(number uint32) []bpf.Instruction {
	rest := []bpf.Instruction{bpf.RetConstant{Val: r.answer}}
	for i := len(r.args) - 1; i >= 0; i-- {
		rest = append(r.args[i].instructions(len(rest)), rest...)
	}
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(rest))},
	}, rest...)
}

// instructions returns the condition's instructions. They skip the rest, which has
// that many instructions, if the condition does not hold.
func (a argument) instructions(rest int) []bpf.Instruction {
	offset := offsetArgs + 8*a.index
	if a.high {
		offset += 4
	}
	list := []bpf.Instruction{bpf.LoadAbsolute{Off: offset, Size: 4}}
	if a.mask != 0 {
		list = append(list, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: a.mask})
	}
	for i, value := range a.values {
		found := len(a.values) - 1 - i // Further comparisons.
		if a.not {
			found += rest
		} else {
			found++ // The jump after them.
		}
		list = append(list, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: uint8(found)})
	}
	if !a.not {
		list = append(list, bpf.Jump{Skip: uint32(rest)})
	}
	return list
}
