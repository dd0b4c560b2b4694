package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attack tries something that a container must not be able to do. An error means that it
// was kept from it.
func attack(what string, args []string) error {
	for _, group := range []func() map[string]func([]string) error{
		fileAttacks, kernelAttacks, processAttacks, networkAttacks, resourceAttacks,
	} {
		if try, ok := group()[what]; ok {
			return try(args)
		}
	}
	return fmt.Errorf("probe: unknown: %s", what)
}

// notPermitted returns the error of a call that may have no valid arguments here. The
// kernel that looks at the arguments, or does not know the call, has let it through.
func notPermitted(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return err
	}
	return nil
}

// call makes a system call. Only a refusal is an error.
func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno == 0 {
		return nil
	}
	return notPermitted(errno)
}

// text returns a pointer to a string for a system call.
func text(s string) uintptr {
	p, _ := unix.BytePtrFromString(s)
	return uintptr(unsafe.Pointer(p))
}

// fileAttacks change what the container may not write, or open what it may not see.
func fileAttacks() map[string]func([]string) error {
	return map[string]func([]string) error{
		"mount":   func([]string) error { return mounted("none", "tmpfs", "") },
		"remount": func([]string) error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") },
		"cgroupmount": func([]string) error { // The first step of CVE-2022-0492: a release agent of one's own.
			if err := mounted("cgroup", "cgroup", "memory"); !errors.Is(err, unix.EINVAL) {
				return err
			}
			return mounted("cgroup", "cgroup2", "") // A machine without version 1.
		},
		"fsopen": func([]string) error { _, err := unix.Fsopen("tmpfs", 0); return err },
		"opentree": func([]string) error {
			_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
			return err
		},
		"umount": func([]string) error { return notPermitted(unix.Unmount("/nowhere", 0)) },
		"pivot":  func([]string) error { return notPermitted(unix.PivotRoot("/nowhere", "/nowhere")) },
		"chroot": func([]string) error { return unix.Chroot("/tmp") },
		"mknod":  func([]string) error { return unix.Mknod("/tmp/block", unix.S_IFBLK|0o600, 0xfe00) },
		"disk":   disk,
		"memory": func([]string) error { return notPermitted(device(unix.S_IFCHR, int(unix.Mkdev(1, 1)))) },
		"handle": func([]string) error {
			return call(unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(0), 0, 0)
		},
		"namehandle": func([]string) error {
			_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
			return notPermitted(err)
		},
		"trusted": func([]string) error {
			if err := os.WriteFile("/tmp/trusted", nil, 0o600); err != nil {
				return err
			}
			return unix.Setxattr("/tmp/trusted", "trusted.berth", []byte("x"), 0)
		},
		"quota":    func([]string) error { return call(unix.SYS_QUOTACTL, 0x80000700, text("/nowhere"), 0, 0) }, // Q_GETFMT
		"fanotify": func([]string) error { _, err := unix.FanotifyInit(0, unix.O_RDONLY); return err },
		"sync":     func([]string) error { return call(unix.SYS_SYNC) },
		"chown":    func([]string) error { return os.Chown("/tmp", 1, 1) },
		"mkdir": func(args []string) error {
			defer os.Remove(args[0])
			return os.Mkdir(args[0], 0o700)
		},
		"open": func(args []string) error {
			file, err := os.Open(args[0])
			if err == nil {
				file.Close()
			}
			return err
		},
		"list": func(args []string) error {
			entries, err := os.ReadDir(args[0])
			if err == nil && len(entries) == 0 {
				err = errors.New("nothing there")
			}
			return err
		},
		"content": func(args []string) error { // Masked files are empty.
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			_, err = file.Read(make([]byte, 1))
			return err
		},
		"append": func(args []string) error {
			file, err := os.OpenFile(args[0], os.O_WRONLY, 0)
			if err == nil {
				file.Close()
			}
			return err
		},
	}
}

// mounted mounts a file system, and unmounts it for those that come next.
func mounted(source, kind, options string) error {
	if err := unix.Mount(source, "/tmp", kind, 0, options); err != nil {
		return err
	}
	return unix.Unmount("/tmp", unix.MNT_DETACH)
}

// device makes a device and opens it.
func device(kind uint32, number int) error {
	const name = "/tmp/device"
	if err := unix.Mknod(name, kind|0o600, number); err != nil {
		return err
	}
	defer os.Remove(name)
	file, err := os.Open(name)
	if err == nil {
		file.Close()
	}
	return err
}

// disk opens a disk of the machine: the first one that can be opened.
func disk([]string) error {
	data, err := os.ReadFile("/proc/partitions")
	if err != nil {
		return err
	}
	err = errors.New("the machine has no disk")
	for line := range strings.Lines(string(data)) {
		var major, minor uint32
		var blocks int64
		var name string
		if n, _ := fmt.Sscan(line, &major, &minor, &blocks, &name); n == 4 {
			if err = device(unix.S_IFBLK, int(unix.Mkdev(major, minor))); err == nil {
				return nil
			}
		}
	}
	return err
}

// kernelAttacks reach parts of the kernel that the machine shares.
func kernelAttacks() map[string]func([]string) error {
	return map[string]func([]string) error{
		"keyring": func([]string) error {
			return call(unix.SYS_ADD_KEY, text("user"), text("berth"), text("x"), 1, ^uintptr(0))
		},
		"keyctl":      func([]string) error { return call(unix.SYS_KEYCTL, 0, ^uintptr(2), 1) },
		"bpf":         func([]string) error { return call(unix.SYS_BPF, 0, 0, 0) },
		"perf":        func([]string) error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0, ^uintptr(0), ^uintptr(0), 0) },
		"userfaultfd": func([]string) error { return call(unix.SYS_USERFAULTFD, 0) },
		"iouring":     func([]string) error { return call(unix.SYS_IO_URING_SETUP, 4, 0) },
		"module":      func([]string) error { return call(unix.SYS_INIT_MODULE, 0, 0, text("")) },
		"modulefile":  func([]string) error { return call(unix.SYS_FINIT_MODULE, ^uintptr(0), text(""), 0) },
		"unmodule":    func([]string) error { return call(unix.SYS_DELETE_MODULE, text("nowhere"), 0) },
		"kexec":       func([]string) error { return call(unix.SYS_KEXEC_LOAD, 0, 99, 0, 0) },
		"reboot":      func([]string) error { return call(unix.SYS_REBOOT, 0, 0, 0, 0) },
		"swapon":      func([]string) error { return call(unix.SYS_SWAPON, text("/nowhere"), 0) },
		"swapoff":     func([]string) error { return call(unix.SYS_SWAPOFF, text("/nowhere")) },
		"acct":        func([]string) error { return call(unix.SYS_ACCT, text("/nowhere")) },
		"dmesg":       func([]string) error { _, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil); return err },
		"clock": func([]string) error {
			return notPermitted(unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Nsec: -1}))
		},
		"timex":    func([]string) error { _, err := unix.Adjtimex(&unix.Timex{}); return err },
		"hostname": func([]string) error { return unix.Sethostname([]byte("other")) },
		"domain":   func([]string) error { return unix.Setdomainname([]byte("other")) },
		"personality": func([]string) error {
			return call(unix.SYS_PERSONALITY, 0x0040000) // ADDR_NO_RANDOMIZE
		},
		"clone3": func([]string) error {
			_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
			if errno == unix.ENOSYS || errno == unix.EPERM {
				return errno
			}
			return nil
		},
		"newuser": func([]string) error { return inNamespace(syscall.CLONE_NEWUSER) },
		"unshare": func([]string) error { return unix.Unshare(unix.CLONE_NEWNS) },
		"newnet":  func([]string) error { return unix.Unshare(unix.CLONE_NEWNET) },
		"setns":   func(args []string) error { return enter(args[0]) },
		"ioports": ioports,
		"numa":    func([]string) error { return call(unix.SYS_MOVE_PAGES, 0, 0, 0, 0, 0, 4) }, // MPOL_MF_MOVE_ALL
	}
}

// inNamespace starts a process in namespaces of its own.
func inNamespace(flags uintptr) error {
	process, err := os.StartProcess("/proc/self/exe", []string{"probe", "exit", "0"},
		&os.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
	if err == nil {
		_, err = process.Wait()
	}
	return err
}

// enter enters a namespace.
func enter(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	runtime.LockOSThread()
	return unix.Setns(int(file.Fd()), 0)
}

// processAttacks reach other processes, or gain rights.
func processAttacks() map[string]func([]string) error {
	return map[string]func([]string) error{
		"kill":    func(args []string) error { return unix.Kill(number(args, 0), 0) },
		"trace":   func([]string) error { return call(unix.SYS_PTRACE, unix.PTRACE_TRACEME) },
		"ptrace":  func(args []string) error { return seize(number(args, 0)) },
		"readmem": func([]string) error { return call(unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()), 0, 0, 0, 0, 0) },
		"writemem": func([]string) error {
			return call(unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getpid()), 0, 0, 0, 0, 0)
		},
		"pidfd":  func(args []string) error { _, err := unix.PidfdOpen(number(args, 0), 0); return err },
		"kcmp":   func(args []string) error { return compare(number(args, 0)) },
		"setuid": func(args []string) error { return syscall.Setuid(number(args, 0)) },
		"setgid": func(args []string) error { return syscall.Setgid(number(args, 0)) },
		"groups": func([]string) error { return syscall.Setgroups([]int{1234}) },
		"status": func(args []string) error { return status(strings.Join(args, " ")) },
		"nice":   func([]string) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -5) },
		"ionice": func([]string) error { return call(unix.SYS_IOPRIO_SET, 1, 0, 1<<13) },
	}
}

func errnoOf(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// seize attaches to a process, if it is there.
func seize(pid int) error {
	runtime.LockOSThread()
	_, _, errno := unix.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0)
	if errno == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0)
	}
	return errnoOf(errno)
}

// compare asks whether this process shares files with another one.
func compare(pid int) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), 2, 0, 0, 0) // KCMP_FILES
	return errnoOf(errno)
}

// status fails if the kernel says of this process what the argument says.
func status(line string) error {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for found := range strings.Lines(string(data)) {
		if strings.Join(strings.Fields(found), " ") == line {
			return errors.New(line)
		}
	}
	return nil
}

// networkAttacks reach other addresses, or the network as a whole.
func networkAttacks() map[string]func([]string) error {
	return map[string]func([]string) error{
		"rawsocket": func([]string) error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
		"raw6":      func([]string) error { return socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6) },
		"packet":    func([]string) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
		"vsock":     func([]string) error { return notPermitted(socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)) },
		"alg":       func([]string) error { return notPermitted(socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)) },
		"key":       func([]string) error { return notPermitted(socket(unix.AF_KEY, unix.SOCK_RAW, 2)) },
		"xdp":       func([]string) error { return notPermitted(socket(unix.AF_XDP, unix.SOCK_RAW, 0)) },
		"tipc":      func([]string) error { return notPermitted(socket(unix.AF_TIPC, unix.SOCK_RAW, 0)) },
		"netadmin":  netAdmin,
		"buffer": func([]string) error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20)
		},
		"dial": func(args []string) error { return dial("tcp", args[0]) },
		"lookup": func(args []string) error {
			_, err := net.LookupHost(args[0])
			return err
		},
		"bound": func(args []string) error { return dialBound(args[0]) },
		"gateway": func(args []string) error { // The machine, as the container sees it.
			address, err := gateway()
			if err != nil {
				return err
			}
			return dial("tcp", net.JoinHostPort(address, args[0]))
		},
		"abstract": func(args []string) error { return dial("unix", "@"+args[0]) },
		"unix":     func(args []string) error { return dial("unix", args[0]) },
	}
}

func socket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// netAdmin asks for a change of the loopback interface that changes nothing.
func netAdmin([]string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	ifreq, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifreq.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(ifreq)))
	return errnoOf(errno)
}

func dial(network, address string) error {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err == nil {
		conn.Close()
		fmt.Println("connected")
	}
	return err
}

// dialBound dials an address as if it was on the network of the first interface.
func dialBound(address string) error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, link := range links {
		if link.Flags&net.FlagLoopback != 0 {
			continue
		}
		dialer := net.Dialer{Timeout: 2 * time.Second, Control: func(_, _ string, c syscall.RawConn) (err error) {
			_ = c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), link.Name) })
			return err
		}}
		conn, err := dialer.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	return errors.New("no interface")
}

// gateway returns the address of the default route.
func gateway() (string, error) {
	data, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && fields[1] == "00000000" {
			n, err := strconv.ParseUint(fields[2], 16, 32)
			return net.IPv4(byte(n), byte(n>>8), byte(n>>16), byte(n>>24)).String(), err
		}
	}
	return "", errors.New("no default route")
}

// resourceAttacks take more than the container may have.
func resourceAttacks() map[string]func([]string) error {
	return map[string]func([]string) error{
		"threads": func(args []string) error { return threads(number(args, 0)) },
		"files": func(args []string) error {
			for range number(args, 0) {
				if _, err := unix.Dup(0); err != nil {
					return err
				}
			}
			return nil
		},
		"fill": func(args []string) error {
			defer os.Remove(args[0])
			return fill(args[0], number(args, 1))
		},
		"lock": func(args []string) error {
			page, err := unix.Mmap(-1, 0, number(args, 0)<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				return err
			}
			return unix.Mlock(page)
		},
		"corelimit": func([]string) error {
			return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20})
		},
	}
}

// threads starts threads that wait. The program ends when it gets none.
func threads(most int) error {
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		return err
	}
	started := make(chan struct{})
	for range most {
		go func() {
			runtime.LockOSThread()
			started <- struct{}{}
			_, _ = syscall.Read(ends[0], make([]byte, 1))
		}()
		<-started
	}
	return nil
}
