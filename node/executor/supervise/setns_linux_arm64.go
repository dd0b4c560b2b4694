package supervise

// sysSetns is setns(2), which package syscall does not have here.
const sysSetns = 268
