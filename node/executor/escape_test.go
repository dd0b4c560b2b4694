package executor_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/compute"
)

// prelude is the common code of all cases. A case succeeds by printing ESCAPED.
const prelude = `
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return r, ctypes.get_errno()
def escaped(yes):
    if yes: print("ESCAPED", flush=True)
`

// escapes are the actions that must fail in a sandbox. Each also runs outside, as
// root, where it must succeed: a case that fails there proves nothing. Harmful
// system calls have invalid arguments. They count as a success if the kernel checks
// the arguments instead of returning EPERM.
var escapes = []struct{ name, code string }{
	{"read a file of the machine", `escaped('root:' in open('/etc/shadow').read())`},
	{"read a file of the data directory", `escaped(open(os.environ['SECRET']).read() == 'secret')`},
	{"write a file of the machine", `open(os.environ['SECRET'] + '.new', 'w').write('x'); escaped(True)`},
	{"write to /usr", "p = '/usr/berth-escape-test'\nopen(p, 'w').close(); os.remove(p); escaped(True)"},
	{"write to the interpreter", "p = sys.prefix + '/berth-escape-test'\nopen(p, 'w').close(); os.remove(p); escaped(True)"},
	{"write to the root", "p = '/berth-escape-test'\nopen(p, 'w').close(); os.remove(p); escaped(True)"},
	{"see another attempt's files", `escaped(len(os.listdir(os.environ['ATTEMPTS'])) > 0)`},
	{"see a process of the machine", `escaped(os.path.exists('/proc/' + os.environ['PID']))`},
	{"signal a process of the machine", `os.kill(int(os.environ['PID']), 0); escaped(True)`},
	{"signal the first process", `os.kill(1, 0); escaped(True)`},
	{"enter the root of a process of the machine", `escaped(len(os.listdir('/proc/%s/root/etc' % os.environ['PID'])) > 0)`},
	{"read the memory of a process", `escaped(len(open('/proc/%s/maps' % os.environ['PID']).read()) > 0)`},
	{"mount", `r, e = call(165, b'none', b'/nowhere', b'tmpfs', 0, None); escaped(e == errno.ENOENT)`},
	{"unmount", `r, e = call(166, b'/nowhere', 0); escaped(e == errno.ENOENT)`},
	{"move a mount", `r, e = call(429, -1, b'', -1, b'', 0); escaped(e not in (errno.EPERM, errno.ENOSYS))`},
	{"mount with the new calls", `r, e = call(430, b'tmpfs', 0); escaped(r >= 0)`},
	{"make a user namespace", "if os.fork() == 0:\n    r, e = call(272, 0x10000000); escaped(r == 0); os._exit(0)\nos.wait()"},
	{"clone into a user namespace", "r, e = call(56, 0x10000000 | 17, 0, 0, 0, 0)\nif r == 0: os._exit(0)\nescaped(r > 0)"},
	{"enter a namespace", "f = os.open('/proc/self/ns/uts', os.O_RDONLY)\nr, e = call(308, f, 0); escaped(r == 0)"},
	{"probe clone3", `r, e = call(435, None, 0); escaped(e not in (errno.ENOSYS, errno.EPERM))`},
	{asI386, "import mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n" +
		"f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\nescaped(f() == os.getpid())"},
	{"chroot", `os.chroot('/'); escaped(True)`},
	{"pivot the root", `r, e = call(155, b'/nowhere', b'/nowhere'); escaped(e == errno.ENOENT)`},
	{"become root", `os.setresuid(0, 0, 0); escaped(os.getuid() == 0)`},
	{"gain by a set-user-id file", `escaped('NoNewPrivs:\t0' in open('/proc/self/status').read())`},
	{"hold a capability", `escaped('CapBnd:\t0000000000000000' not in open('/proc/self/status').read())`},
	{"be without a filter", `escaped('Seccomp:\t0' in open('/proc/self/status').read())`},
	{"open a raw socket", `socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); escaped(True)`},
	{"open a packet socket", `socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0); escaped(True)`},
	{"reach a port of the machine", `socket.create_connection(('127.0.0.1', int(os.environ['PORT'])), 5); escaped(True)`},
	{"reach an abstract socket of the machine", `socket.socket(socket.AF_UNIX).connect('\0' + os.environ['ABSTRACT']); escaped(True)`},
	{"see a network of the machine", `escaped(len(os.listdir('/sys/class/net')) > 1)`},
	{"use the keyring", `r, e = call(248, b'user', b'berth', b'x', 1, -1); escaped(r > 0)`},
	{"set up io_uring", `r, e = call(425, 4, (ctypes.c_char * 120)()); escaped(r >= 0)`},
	{"load a program into the kernel", `r, e = call(321, 0, None, 0); escaped(e != errno.EPERM)`},
	{"watch the kernel's events", `r, e = call(298, None, 0, -1, -1, 0); escaped(e != errno.EPERM)`},
	{"trace", `r, e = call(101, 0, 0, 0, 0); escaped(r == 0)`},
	{"read another process's memory by call", `r, e = call(310, int(os.environ['PID']), None, 0, None, 0, 0); escaped(r == 0)`},
	{"open a file by its handle", `r, e = call(304, -1, None, 0); escaped(e != errno.EPERM)`},
	{"handle page faults of the kernel", `r, e = call(323, 0); escaped(r >= 0)`},
	{"load a module", `r, e = call(175, None, 0, b''); escaped(e != errno.EPERM)`},
	{"replace the kernel", `r, e = call(246, 0, 99, None, 0); escaped(e != errno.EPERM)`},
	{"reboot", `r, e = call(169, 0, 0, 0, None); escaped(e == errno.EINVAL)`},
	{"name the machine", `n = socket.gethostname(); socket.sethostname(n); escaped(True)`},
	{"read the kernel's log", `os.open('/dev/kmsg', os.O_RDONLY); escaped(True)`},
	{"write the core pattern", `os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY); escaped(True)`},
	{"read the kernel's timers", `escaped(len(open('/proc/timer_list').read()) > 0)`},
	{"make a device", "import stat\nos.mknod('/tmp/berth-escape', 0o600 | stat.S_IFBLK, os.makedev(254, 0)); os.remove('/tmp/berth-escape'); escaped(True)"},
	{"flush the machine's disks", `ctypes.set_errno(0); libc.sync(); escaped(ctypes.get_errno() == 0)`},
	{"flush a file system", `r, e = call(306, os.open('/tmp', os.O_RDONLY)); escaped(r == 0)`},
	{"attach a filter to a socket", "f = ctypes.create_string_buffer(b'\\x06\\0\\0\\0\\xff\\xff\\0\\0')\n" +
		"import struct\nsocket.socket(socket.AF_UNIX).setsockopt(1, 26, struct.pack('HxxxxxxQ', 1, ctypes.addressof(f))); escaped(True)"},
	{"install a filter of system calls", `r, e = call(157, 22, 2, None); escaped(e == errno.EFAULT)`},
	{"install a filter by the new call", `r, e = call(317, 1, 0, None); escaped(e == errno.EFAULT)`},
	{"make a pair of another family", `r, e = call(53, 40, 1, 0, (ctypes.c_int * 2)()); escaped(e == errno.EOPNOTSUPP)`},
	{"take what the machine has for asynchronous I/O", `r, e = call(206, 1, ctypes.byref(ctypes.c_ulong(0))); escaped(r == 0)`},
	{"speak to the kernel by another protocol", `socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2); escaped(True)`},
	{"load a line discipline", "m, s = os.openpty()\nr, e = call(16, s, 0x5423, ctypes.byref(ctypes.c_int(0))); escaped(r == 0)"},
	{"have core dumps handled by the machine", "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n" +
		`escaped(resource.getrlimit(resource.RLIMIT_CORE)[0] != 1)`},
	{"see control groups", `escaped(len(os.listdir('/sys/fs/cgroup')) > 0)`},
	{"raise its priority", `os.nice(-1); escaped(True)`},
	{"exceed the kernel's largest socket buffers", `socket.socket().setsockopt(socket.SOL_SOCKET, 33, 1 << 24); escaped(True)`},
	{"find an open descriptor", `escaped(any(os.path.exists('/proc/self/fd/%d' % n) for n in range(3, 64)))`},
}

// asI386 is the case that some kernels of virtual machines do not have: there it is skipped.
const asI386 = "call the kernel as i386"

// TestEscapes checks that every case fails in the sandbox and succeeds outside.
func TestEscapes(t *testing.T) {
	t.Parallel()
	if len(escapes) <= 60 {
		t.Errorf("there are %d cases, and one may be skipped", len(escapes))
	}
	n := newNode(t, nil)
	env := surroundings(t, n)
	for _, test := range escapes {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := n.as(t)
			code := prelude + test.code
			out := outside(t, code, env)
			possible := strings.Contains(out, "ESCAPED")
			if !possible && test.name != asI386 {
				t.Fatalf("does not succeed outside either:\n%s", out)
			}
			if _, out := n.execute(compute.Bundle{Code: code, Env: env}, nil); strings.Contains(out, "ESCAPED") {
				t.Errorf("succeeded in the sandbox:\n%s", out)
			}
			if !possible {
				t.Skip("this machine's kernel takes no calls of i386")
			}
		})
	}
}

// surroundings makes the targets of the cases, and returns their variables.
func surroundings(t *testing.T, n *node) map[string]string {
	t.Helper()
	secret := filepath.Join(n.cfg.DataDir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	abstract := "berth-escape-" + n.cfg.Node.String() // Tests with surroundings of their own run at once.
	unix, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close() })
	id := n.place(n.newWork(compute.Bundle{Code: "import time\ntime.sleep(600)"}))
	await(t, "another attempt", func() bool { return n.started(id) })
	t.Cleanup(func() {
		n.update(func() { delete(n.work, id) })
		n.end(id)
	})
	return map[string]string{
		"SECRET": secret, "PID": fmt.Sprint(os.Getpid()), "ABSTRACT": abstract,
		"ATTEMPTS": filepath.Join(n.cfg.DataDir, "attempts"),
		"PORT":     fmt.Sprint(port.Addr().(*net.TCPAddr).Port),
	}
}

// outside executes the code as root of the machine, with one inherited descriptor.
func outside(t *testing.T, code string, env map[string]string) string {
	t.Helper()
	cmd := exec.Command("python3", "-c", code)
	cmd.Env = os.Environ()
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd.ExtraFiles = []*os.File{null}
	out, _ := cmd.CombinedOutput() // The output shows whether the case failed.
	return string(out)
}

// reach does all that one user may do to a thread of another process, to every
// thread that may be there: the first process has the lowest numbers. It prints
// what did not fail.
const reach = prelude + `
import resource, signal
class Limit(ctypes.Structure):
    _fields_ = [('soft', ctypes.c_ulong), ('hard', ctypes.c_ulong)]
class Param(ctypes.Structure):
    _fields_ = [('priority', ctypes.c_int)]
limit, mask, param = Limit(0, 0), ctypes.c_ulong(1), Param(0)
me = os.getpid()
seen = {int(d) for d in os.listdir('/proc') if d.isdigit()}
try:
    seen |= {int(d) for d in os.listdir('/proc/1/task')}
except OSError:
    pass
for tid in sorted(seen | set(range(1, me + 64))):
    if tid == me: continue
    calls = [('prlimit', 302, (tid, 7, ctypes.byref(limit), None)), ('sched_setaffinity', 203, (tid, 8, ctypes.byref(mask))),
             ('sched_setscheduler', 144, (tid, 3, ctypes.byref(param))), ('setpriority', 141, (0, tid, 19)),
             ('ioprio_set', 251, (1, tid, 3 << 13))]
    for sig in (1, 2, 3, 6, 9, 11, 15, 19):
        calls += [('tgkill %d' % sig, 234, (1, tid, sig)), ('tkill %d' % sig, 200, (tid, sig)), ('kill %d' % sig, 62, (tid, sig))]
    for name, number, args in calls:
        r, e = call(number, *args)
        if r != -1 or e not in (errno.EPERM, errno.ESRCH):
            print('REACHED', name, tid, r, e, flush=True)
sys.exit(7)
`

// TestOtherProcessesAreOutOfReach checks that code can neither end nor slow down the
// processes around it: the execution ends as its own code exits.
func TestOtherProcessesAreOutOfReach(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	o, out := n.execute(compute.Bundle{Code: reach}, nil)
	ending{compute.StatusFailed, compute.ReasonExitCode, "exit code 7", 7}.check(t, o)
	if strings.Contains(out, "REACHED") {
		t.Errorf("reached other threads:\n%s", out)
	}
}

// TestCountsAreOwn checks that code which takes all of what the kernel counts for a
// user takes nothing from another execution.
func TestCountsAreOwn(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	takeAll := prelude + "n = 0\nwhile libc.inotify_init() >= 0: n += 1\nprint('took', n)\n"
	first := n.place(n.newWork(compute.Bundle{Code: takeAll + "import time\ntime.sleep(600)"}))
	await(t, "the first execution", func() bool { return strings.HasSuffix(n.output(first), "\n") })
	took := n.output(first)
	_, second := n.execute(compute.Bundle{Code: takeAll}, nil)
	if second != took || took == "took 0\n" {
		t.Errorf("the first execution %q, the second one %q", took, second)
	}
	n.update(func() { clear(n.work) })
	n.end(first)
}

// TestNetlinkSocketsAreFew checks that all processes of an execution together have few
// netlink sockets, whose buffers no limit bounds, and that interfaces can be listed.
func TestNetlinkSocketsAreFew(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	code := prelude + `
def take(most):
    taken = []
    try:
        while len(taken) < most: taken.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
    return taken
some = take(10)
print(any(os.get_inheritable(s.fileno()) for s in some), flush=True)
if os.fork() == 0:
    print(len(take(1000)), flush=True)
    os._exit(0)
os.wait()
print(len(some) + len(take(6)))
del some
print([name for _, name in socket.if_nameindex()][:1], len(take(100)))
`
	o, out := n.execute(compute.Bundle{Code: code}, nil)
	if want := "False\nEMFILE\n6\n16\nEMFILE\n['lo'] 16\n"; out != want {
		t.Errorf("ended as %s with output\n%s\nwant\n%s", o.Status, out, want)
	}
}

// TestTerminalsAreFew checks that an execution cannot take all terminals of the machine.
func TestTerminalsAreFew(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	code := "import os\nn = 0\ntry:\n    while n < 1000: os.openpty(); n += 1\nexcept OSError: pass\nprint(n)"
	if o, out := n.execute(compute.Bundle{Code: code}, nil); out != "64\n" {
		t.Errorf("ended as %s with output %q", o.Status, out)
	}
}

// TestForeignArchitectureIsKilled checks that a call of a foreign architecture
// kills the code, which could ignore an error.
func TestForeignArchitectureIsKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	x32 := prelude + "call(0x40000000 + 39)\nprint('went on')"
	o, out := n.execute(compute.Bundle{Code: x32}, nil)
	ending{compute.StatusFailed, compute.ReasonSignal, "signal 31", 159}.check(t, o)
	if strings.Contains(out, "went on") {
		t.Error("the code went on")
	}
}

// TestUsersDiffer checks that concurrent attempts have different host user ids.
func TestUsersDiffer(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	code := "import time\nprint(open('/proc/self/uid_map').read())\nwhile True: time.sleep(1)"
	var maps []string
	for range 2 {
		id := n.place(n.newWork(compute.Bundle{Code: code}))
		await(t, "the map", func() bool { return len(strings.Fields(n.output(id))) == 3 })
		maps = append(maps, strings.Fields(n.output(id))[1])
	}
	if maps[0] == maps[1] {
		t.Errorf("both attempts are user %s of the machine", maps[0])
	}
	n.update(func() { clear(n.work) })
	await(t, "the end of both", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.outcomes) == 2 })
}
