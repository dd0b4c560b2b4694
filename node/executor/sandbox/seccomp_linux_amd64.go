package sandbox

// sysSeccomp is seccomp(2), which package syscall lacks here.
const sysSeccomp = 317
