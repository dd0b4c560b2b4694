package sandbox

// sysSetns is setns(2), which package syscall lacks here.
const sysSetns = 308
