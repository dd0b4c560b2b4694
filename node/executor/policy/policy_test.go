package policy_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"berth/node/executor/policy"
)

// answer runs the program on a system call, as the kernel would.
func answer(t *testing.T, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	data, err := policy.Seccomp()
	if err != nil {
		t.Fatal(err)
	}
	var program []bpf.Instruction
	for ; len(data) > 0; data = data[8:] {
		raw := bpf.RawInstruction{
			Op: binary.NativeEndian.Uint16(data), Jt: data[2], Jf: data[3], K: binary.NativeEndian.Uint32(data[4:]),
		}
		program = append(program, raw.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	// The VM reads packets, which are in network byte order.
	call := make([]byte, 64)
	binary.BigEndian.PutUint32(call, number)
	binary.BigEndian.PutUint32(call[4:], arch)
	for i, arg := range args {
		binary.BigEndian.PutUint32(call[16+8*i:], uint32(arg))
		binary.BigEndian.PutUint32(call[20+8*i:], uint32(arg>>32))
	}
	verdict, err := vm.Run(call)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(verdict)
}

func TestSeccomp(t *testing.T) {
	const (
		allow = uint32(unix.SECCOMP_RET_ALLOW)
		kill  = uint32(unix.SECCOMP_RET_KILL_PROCESS)
		eperm = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
		nosys = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
		inval = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EINVAL)
		ours  = nativeArch

		pretend    = uint32(unix.SECCOMP_RET_ERRNO)
		ask        = uint32(unix.SECCOMP_RET_USER_NOTIF)
		noProtocol = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPROTONOSUPPORT)
		noType     = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ESOCKTNOSUPPORT)
		noFamily   = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EAFNOSUPPORT)
	)
	for _, test := range []struct {
		name   string
		arch   uint32
		number uint32
		args   []uint64
		want   uint32
	}{
		{"read", ours, unix.SYS_READ, nil, allow},
		{"execve", ours, unix.SYS_EXECVE, nil, allow},
		{"clone a thread", ours, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, allow},
		{"clone a user namespace", ours, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, eperm},
		{"clone a mount namespace", ours, unix.SYS_CLONE, []uint64{unix.CLONE_NEWNS | unix.CLONE_VM}, eperm},
		{"clone3", ours, unix.SYS_CLONE3, nil, nosys},
		{"newer than the list", ours, 4000, nil, nosys},
		{"unshare", ours, unix.SYS_UNSHARE, nil, eperm},
		{"mount", ours, unix.SYS_MOUNT, nil, eperm},
		{"ptrace", ours, unix.SYS_PTRACE, nil, eperm},
		{"bpf", ours, unix.SYS_BPF, nil, eperm},
		{"io_uring", ours, unix.SYS_IO_URING_SETUP, nil, eperm},
		{"sync", ours, unix.SYS_SYNC, nil, eperm},
		{"syncfs", ours, unix.SYS_SYNCFS, nil, eperm},
		{"fsync", ours, unix.SYS_FSYNC, nil, allow},
		{"fdatasync", ours, unix.SYS_FDATASYNC, nil, allow},
		{"sync a range", ours, unix.SYS_SYNC_FILE_RANGE, nil, allow},
		{"keyctl", ours, unix.SYS_KEYCTL, nil, eperm},
		{"tcp socket", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, allow},
		{"unix socket", ours, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, allow},
		{"packet socket", ours, unix.SYS_SOCKET, []uint64{unix.AF_PACKET}, eperm},
		{"crypto socket", ours, unix.SYS_SOCKET, []uint64{unix.AF_ALG}, eperm},
		{"vm socket", ours, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, eperm},
		{"family with high bits", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET | 1<<32, unix.SOCK_STREAM}, eperm},
		{"stream socket", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, unix.IPPROTO_TCP}, allow},
		{"datagram socket", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK, unix.IPPROTO_UDP}, allow},
		{"ping socket", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, allow},
		{"ping socket of the other family", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, noProtocol},
		{"raw socket, which the kernel refuses", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, allow},
		{"protocol of a module", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, noProtocol},
		{"protocol of a module, high bits", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET, 1<<32 | unix.SOCK_STREAM, 1<<32 | unix.IPPROTO_SCTP}, noProtocol},
		{"protocol of another type", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_UDP}, noProtocol},
		{"type of a module", ours, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_SEQPACKET, 0}, noType},
		{"unix socket of any type", ours, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET, 0}, allow},
		{"route socket", ours, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE}, ask},
		{"netlink protocol of a module", ours, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC}, noProtocol},
		{"unix pair", ours, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, allow},
		{"pair of another family", ours, unix.SYS_SOCKETPAIR, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, noFamily},
		{"socket option", ours, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_REUSEADDR}, allow},
		{"option of another level", ours, unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}, allow},
		{"socket filter", ours, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, eperm},
		{"socket filter, high bits", ours, unix.SYS_SETSOCKOPT, []uint64{3, 1<<40 | unix.SOL_SOCKET, 1<<40 | unix.SO_ATTACH_FILTER}, eperm},
		{"filter of a group of sockets", ours, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, 51}, eperm},
		{"name a thread", ours, unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME}, allow},
		{"seccomp by prctl", ours, unix.SYS_PRCTL, []uint64{1<<32 | unix.PR_SET_SECCOMP}, inval},
		{"seccomp", ours, unix.SYS_SECCOMP, []uint64{1}, nosys},
		{"asynchronous I/O", ours, unix.SYS_IO_SETUP, []uint64{1}, nosys},
		{"limit files", ours, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_NOFILE, 1 << 20, 0}, allow},
		{"read the limit of core dumps", ours, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 0, 1 << 20}, allow},
		{"limit core dumps", ours, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 1 << 20, 0}, pretend},
		{"limit core dumps, from 4 GiB", ours, unix.SYS_PRLIMIT64, []uint64{0, 1<<32 | unix.RLIMIT_CORE, 1 << 32, 0}, pretend},
		{"limit core dumps by the old call", ours, unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_CORE, 1 << 20}, pretend},
		{"size of a terminal", ours, unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, allow},
		{"line discipline", ours, unix.SYS_IOCTL, []uint64{0, unix.TIOCSETD}, eperm},
		{"personality default", ours, unix.SYS_PERSONALITY, []uint64{0}, allow},
		{"personality without randomness", ours, unix.SYS_PERSONALITY, []uint64{0x40000}, eperm},
		{"foreign architecture", foreignArch, 20, nil, kill},
	} {
		if got := answer(t, test.arch, test.number, test.args...); got != test.want {
			t.Errorf("%s: answer %#x, want %#x", test.name, got, test.want)
		}
	}
	if nativeArch == unix.AUDIT_ARCH_X86_64 {
		if got := answer(t, ours, 0x40000000+39); got != kill {
			t.Errorf("x32: answer %#x, want %#x", got, kill)
		}
	}
}

func TestLandlock(t *testing.T) {
	rules, abi := policy.Landlock()
	if abi == 0 {
		if rules.Handled != 0 {
			t.Errorf("rules without Landlock: %+v", rules)
		}
		return
	}
	if rules.Handled == 0 || rules.Everywhere&^rules.Handled != 0 || rules.Writable&^rules.Handled != 0 ||
		rules.Device&^rules.Handled != 0 {
		t.Errorf("rules allow what they do not handle: %+v", rules)
	}
	if rules.Everywhere&unix.LANDLOCK_ACCESS_FS_WRITE_FILE != 0 || rules.Writable&unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK != 0 {
		t.Errorf("rules allow to write anywhere or to make devices: %+v", rules)
	}
}
