package sandbox

import (
	"syscall"
	"unsafe"
)

// Numbers and flags that package syscall lacks. System calls above 423 have the
// same number on every architecture.
const (
	sysOpenTree           = 428
	sysMoveMount          = 429
	sysCloseRange         = 436
	sysMountSetattr       = 442
	sysLandlockCreate     = 444
	sysLandlockAddRule    = 445
	sysLandlockRestrict   = 446
	openTreeClone         = 0x1
	openTreeCloexec       = syscall.O_CLOEXEC
	moveMountFEmptyPath   = 0x4
	atEmptyPath           = 0x1000
	atRecursive           = 0x8000
	mountAttrRdonly       = 0x1
	mountAttrNosuid       = 0x2
	mountAttrNodev        = 0x4
	closeRangeCloexec     = 0x4
	oPath                 = 0x200000
	cloneNewCgroup        = 0x02000000
	nsGetNsType           = 0xb703
	prSetNoNewPrivs       = 38
	prCapBsetDrop         = 24
	prGetSecurebits       = 27
	prSetSecurebits       = 28
	secbitNoSetuidFixup   = 0x4
	seccompModeFilter     = 1
	seccompNewListener    = 0x8
	seccompWaitKillable   = 0x20 // Linux 5.19.
	rlimitNproc           = 6
	landlockPathBeneath   = 1
	lastCapability        = 63
	ifFlagUp              = 0x1
	siocSetInterfaceFlags = 0x8914
)

// mountAttr is struct mount_attr.
type mountAttr struct {
	set, clear, propagation, userns uint64
}

// openTree returns a detached clone of the mounts at and below path, with the
// attributes set.
func openTree(path string, attributes uint64) (int, error) {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	at := -100 // AT_FDCWD
	fd, _, errno := syscall.Syscall(sysOpenTree, uintptr(at), uintptr(unsafe.Pointer(p)),
		openTreeClone|openTreeCloexec|atRecursive)
	if errno != 0 {
		return -1, errno
	}
	attr, empty := mountAttr{set: attributes}, [1]byte{}
	_, _, errno = syscall.Syscall6(sysMountSetattr, fd, uintptr(unsafe.Pointer(&empty)),
		atEmptyPath|atRecursive, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		syscall.Close(int(fd))
		return -1, errno
	}
	return int(fd), nil
}

// moveMount attaches the detached mount at path.
func moveMount(fd int, path string) error {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	at, empty := -100, [1]byte{}
	_, _, errno := syscall.Syscall6(sysMoveMount, uintptr(fd), uintptr(unsafe.Pointer(&empty)),
		uintptr(at), uintptr(unsafe.Pointer(p)), moveMountFEmptyPath, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// closeOnExecFrom sets close-on-exec on every descriptor from first on.
func closeOnExecFrom(first int) error {
	_, _, errno := syscall.RawSyscall(sysCloseRange, uintptr(first), ^uintptr(0)>>1&0xffffffff, closeRangeCloexec)
	if errno != 0 {
		return errno
	}
	return nil
}

func prctl(option, value uintptr) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func prctlGet(option uintptr) (uintptr, error) {
	value, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return value, nil
}

// setEffectiveUser changes the effective user of the calling thread alone.
func setEffectiveUser(user int) error {
	same := ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(user), same); errno != 0 {
		return errno
	}
	return nil
}

type sockFprog struct {
	length uint16
	filter *byte
}

// installFilter installs the seccomp filter on the calling thread.
func installFilter(program []byte) (listener int, err error) {
	prog := sockFprog{length: uint16(len(program) / 8), filter: &program[0]}
	for _, flags := range []uintptr{seccompNewListener | seccompWaitKillable, seccompNewListener} {
		fd, _, errno := syscall.RawSyscall(sysSeccomp, seccompModeFilter, flags, uintptr(unsafe.Pointer(&prog)))
		if errno == 0 {
			return int(fd), nil
		}
		err = errno
	}
	return -1, err
}

// landlockRuleset is struct landlock_ruleset_attr up to the fields of ABI version 6.
type landlockRuleset struct {
	fs, net, scoped uint64
}

// landlockPath is struct landlock_path_beneath_attr, which is packed.
type landlockPath [12]byte

func landlockCreate(rules Landlock) (int, error) {
	attr := landlockRuleset{fs: rules.Handled, scoped: rules.Scoped}
	size := unsafe.Sizeof(attr.fs)
	if rules.Scoped != 0 {
		size = unsafe.Sizeof(attr)
	}
	fd, _, errno := syscall.RawSyscall(sysLandlockCreate, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func landlockAllow(ruleset int, path string, access uint64) error {
	fd, err := syscall.Open(path, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var attr landlockPath
	*(*uint32)(unsafe.Pointer(&attr[0])) = uint32(access)
	*(*uint32)(unsafe.Pointer(&attr[4])) = uint32(access >> 32)
	*(*int32)(unsafe.Pointer(&attr[8])) = int32(fd)
	_, _, errno := syscall.RawSyscall6(sysLandlockAddRule, uintptr(ruleset), landlockPathBeneath,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func landlockRestrict(ruleset int) error {
	_, _, errno := syscall.RawSyscall(sysLandlockRestrict, uintptr(ruleset), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// loopbackUp brings up lo in the calling process's network namespace.
func loopbackUp() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	request := struct {
		name  [16]byte
		flags uint16
		rest  [22]byte
	}{name: [16]byte{'l', 'o'}, flags: ifFlagUp}
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), siocSetInterfaceFlags,
		uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return errno
	}
	return nil
}
