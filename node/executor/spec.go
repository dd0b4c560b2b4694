package executor

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/compute"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// systemDirs returns what every machine has and every program needs. Where one
// is a symbolic link, as on a merged /usr, the sandbox has the same link.
func systemDirs() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
}

// systemFiles returns what is shown where the machine has it: the linker's
// cache, TLS roots, names and zones. Nothing that tells of users or of the
// machine.
func systemFiles() []string {
	return []string{
		"/etc/alternatives", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types",
		"/etc/pki", "/etc/protocols", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
	}
}

// devices returns what every execution may open.
func devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
}

// gpuDevices returns what a GPU needs beside its own device.
func gpuDevices() []string {
	return []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
}

const (
	mountsDir   = "/mnt"
	hostname    = "berth"
	ownVariable = "BERTH_" // Variables that begin so are ours alone.

	passwd = "root:x:0:0:root:/root:/usr/sbin/nologin\n" +
		"berth:x:1000:1000:berth:/work:/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group = "root:x:0:\nberth:x:1000:\nnogroup:x:65534:\n"
	hosts = "127.0.0.1 localhost berth\n::1 localhost\n"
	names = "passwd: files\ngroup: files\nhosts: files dns\n"
)

// spec returns what the supervisor of the work needs to know.
func (e *Executor) spec(work compute.Work, bundle *compute.Bundle, room *room, dir string) *supervise.Spec {
	limits := limitsOf(work, e.cfg.HostCPUs, e.cfg.HostMemoryMiB)
	execution, attempt := work.Execution, work.Attempt
	spec := &supervise.Spec{
		Execution: attempt.Execution, Epoch: attempt.Epoch, PlaceIndex: attempt.PlaceIndex,
		Slot: room.slot.number, GPUs: len(attempt.GPUs),
		Group:     e.groupName(keyOf(attempt)),
		MemoryMiB: limits.memoryMiB, CPUMilli: limits.cpuMilli, Pids: maxPids, Simulated: limits.simulated,
		Timeout: execution.Timeout, StopGrace: e.cfg.StopGrace,
		JoinNetwork: room.network != nil, Notes: room.notes,
		Sandbox: sandbox.Spec{
			UIDBase: room.slot.uid(), Hostname: hostname, OwnNetwork: room.network == nil,
			WorkSource: filepath.Join(dir, supervise.WorkDir), ScratchMiB: e.scratchMiB(limits.memoryMiB),
			Argv: e.python.argv(bundle), Env: e.environment(work, bundle),
			MaxProcs: maxPids, MaxFiles: maxFiles,
			Seccomp: e.seccomp, Landlock: e.landlock,
			Files: append(e.python.files(bundle), ownFiles(room.resolv)...),
		},
	}
	spec.Sandbox.Binds, spec.Sandbox.Links = e.binds(work)
	showNotice(work, spec, filepath.Join(dir, supervise.NoticeDir))
	return spec
}

// scratchMiB returns the size of the writable memory: a part of the limit that
// it counts against, so that a full one is an error before it is an end.
func (e *Executor) scratchMiB(memoryMiB int64) int64 {
	if e.cfg.ScratchMiB > 0 {
		return min(e.cfg.ScratchMiB, memoryMiB)
	}
	return max(memoryMiB/2, 1)
}

func ownFiles(resolv string) []sandbox.File {
	files := []sandbox.File{
		{Path: "/etc/passwd", Text: passwd, Mode: 0o444},
		{Path: "/etc/group", Text: group, Mode: 0o444},
		{Path: "/etc/hosts", Text: hosts, Mode: 0o444},
		{Path: "/etc/hostname", Text: hostname + "\n", Mode: 0o444},
		{Path: "/etc/nsswitch.conf", Text: names, Mode: 0o444},
	}
	return append(files, sandbox.File{Path: "/etc/resolv.conf", Text: resolv, Mode: 0o444})
}

// binds returns the views and links that the work's root is made of.
func (e *Executor) binds(work compute.Work) ([]sandbox.Bind, []sandbox.Link) {
	binds, links := slices.Clone(e.baseBinds), slices.Clone(e.baseLinks)
	for _, gpu := range work.GPUs {
		if gpu.Simulated {
			continue
		}
		// A slice has its device's number, and rights of its own.
		binds = append(binds, deviceBind(fmt.Sprintf("/dev/nvidia%d", gpu.Index))...)
		if gpu.Slice() != "" {
			for _, name := range migDevices(procRoot, gpu) {
				binds = append(binds, deviceBind(name)...)
			}
		}
	}
	if len(work.GPUs) > 0 && !work.GPUs[0].Simulated {
		for _, name := range gpuDevices() {
			binds = append(binds, deviceBind(name)...)
		}
	}
	return binds, links
}

// baseRoot returns the views and links that every root of this node has.
func baseRoot(p *python, siteDirs []string, mounts []Mount) ([]sandbox.Bind, []sandbox.Link) {
	var binds []sandbox.Bind
	links := []sandbox.Link{
		{Path: "/dev/fd", Target: "/proc/self/fd"},
		{Path: "/dev/stdin", Target: "/proc/self/fd/0"},
		{Path: "/dev/stdout", Target: "/proc/self/fd/1"},
		{Path: "/dev/stderr", Target: "/proc/self/fd/2"},
		{Path: "/dev/ptmx", Target: "pts/ptmx"},
	}
	show := func(name string) {
		info, err := os.Lstat(name)
		if err != nil {
			return
		}
		if info.Mode()&os.ModeSymlink != 0 {
			if target, err := os.Readlink(name); err == nil {
				links = append(links, sandbox.Link{Path: name, Target: target})
			}
			return
		}
		binds = add(binds, sandbox.Bind{Source: name, Target: name})
	}
	for _, name := range systemDirs() {
		show(name)
	}
	for _, name := range systemFiles() {
		show(name)
	}
	own := slices.Clone(siteDirs)
	if p != nil {
		own = append(own, p.Prefixes...)
	}
	slices.Sort(own) // Parents before children.
	for _, name := range own {
		binds = add(binds, sandbox.Bind{Source: name, Target: name})
	}
	for _, m := range mounts {
		target := path.Join(mountsDir, m.Name)
		binds = add(binds, sandbox.Bind{Source: m.Path, Target: target, Writable: !m.ReadOnly})
	}
	for _, name := range devices() {
		binds = append(binds, deviceBind(name)...)
	}
	return binds, links
}

// add adds the view unless another one shows it already.
func add(binds []sandbox.Bind, b sandbox.Bind) []sandbox.Bind {
	for _, have := range binds {
		if have.Source == have.Target && b.Source == b.Target && sandbox.Contains(have.Target, b.Target) {
			return binds
		}
	}
	return append(binds, b)
}

// deviceBind returns the view of a device that the machine may not have.
func deviceBind(name string) []sandbox.Bind {
	if _, err := os.Stat(name); err != nil {
		return nil
	}
	return []sandbox.Bind{{Source: name, Target: name, Device: true}}
}

// gpuVariables returns the variables that describe the GPUs to the code, by
// the driver's UUID of the device or of the MIG slice, and how much of each it
// holds. Shares are alike, the memory is that of the smallest.
func gpuVariables(work compute.Work) map[string]string {
	var ids []string
	env := map[string]string{"BERTH_GPU_TYPE": ""}
	for _, gpu := range work.GPUs {
		ids = append(ids, string(gpu.ID))
		env["BERTH_GPU_TYPE"] = gpu.Type
		if slice := gpu.Slice(); slice != "" {
			env["BERTH_GPU_MIG"] = compute.MIGProfile(slice)
		}
	}
	env["BERTH_GPUS"] = strings.Join(ids, ",")
	env["CUDA_VISIBLE_DEVICES"] = env["BERTH_GPUS"]
	if shares := work.Attempt.GPUs; len(shares) > 0 {
		memory := shares[0].VRAMMiB
		for _, share := range shares {
			memory = min(memory, share.VRAMMiB)
		}
		env["BERTH_GPU_MILLI"] = strconv.Itoa(shares[0].Milli)
		env["BERTH_GPU_MEMORY_MIB"] = strconv.FormatInt(memory, 10)
		env["BERTH_GPU_ISOLATION"] = compute.IsolationOf(shares).Level()
	}
	return env
}

// environment returns the variables of the code: a plain shell's, the
// bundle's, and ours, each over the one before.
func (e *Executor) environment(work compute.Work, bundle *compute.Bundle) []string {
	bin := filepath.Dir(e.python.Executable)
	env := map[string]string{
		"PATH": bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": sandbox.WorkDir, "USER": "berth", "LOGNAME": "berth", "SHELL": "/bin/sh",
		"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1",
	}
	for name, value := range bundle.Env {
		if name != "" && !strings.ContainsAny(name, "=\x00") && !strings.ContainsRune(value, 0) &&
			!strings.HasPrefix(name, ownVariable) {
			env[name] = value
		}
	}
	if len(e.cfg.SiteDirs) > 0 {
		dirs := strings.Join(e.cfg.SiteDirs, ":")
		env["PYTHONPATH"] = strings.TrimPrefix(env["PYTHONPATH"]+":"+dirs, ":")
	}
	env["BERTH_EXECUTION_ID"] = work.Execution.ID.String()
	env["BERTH_ATTEMPT"] = strconv.FormatUint(work.Attempt.Epoch, 10)
	maps.Copy(env, gpuVariables(work))
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
