package policy_test

import "golang.org/x/sys/unix"

const (
	nativeArch  = unix.AUDIT_ARCH_X86_64
	foreignArch = unix.AUDIT_ARCH_I386
)
