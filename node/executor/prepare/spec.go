package prepare

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/composefile"
	"berth/compute"
	"berth/node/executor/live"
	"berth/node/executor/packages"
	"berth/node/executor/policy"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// systemDirs returns the directories of the machine that every sandbox has. If one
// is a symbolic link, as on a merged /usr, the sandbox has the same link.
func systemDirs() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
}

// systemFiles returns the files that every sandbox has if they exist: the linker's
// cache, TLS roots, names and time zones. None of them reveals users or the
// machine.
func systemFiles() []string {
	return []string{
		"/etc/alternatives", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types",
		"/etc/pki", "/etc/protocols", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
	}
}

// devices returns the devices that every execution may open.
func devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
}

// gpuDevices returns the devices that a GPU needs besides its own.
func gpuDevices() []string {
	return []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
}

// searchPath is the PATH of sandboxes, after the interpreter's directory.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const (
	hostname    = "berth"
	ownVariable = "BERTH_" // The prefix of variables that only Berth sets.

	passwd = "root:x:0:0:root:/root:/usr/sbin/nologin\n" +
		"berth:x:1000:1000:berth:/work:/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group    = "root:x:0:\nberth:x:1000:\nnogroup:x:65534:\n"
	hosts    = "127.0.0.1 localhost berth\n::1 localhost\n"
	nsswitch = "passwd: files\ngroup: files\nhosts: files dns\n"
)

// specs makes the specs of supervisors: everything that an attempt gets, as data.
type specs struct {
	cfg       *Config
	groups    *live.Groups
	python    *python // Nil if there is none.
	seccomp   []byte
	landlock  sandbox.Landlock
	baseBinds []sandbox.Bind
	baseLinks []sandbox.Link
}

// openSpecs reads what all roots of this node have in common. It warns of what the machine
// cannot keep from executions.
func openSpecs(cfg *Config, groups *live.Groups, python *python, log *slog.Logger) (*specs, error) {
	s := &specs{cfg: cfg, groups: groups, python: python}
	var err error
	if s.seccomp, err = policy.Seccomp(); err != nil {
		return nil, err
	}
	s.landlock, _ = policy.Landlock()
	gaps, err := Gaps()
	if err != nil {
		return nil, err
	}
	if len(gaps) > 0 {
		log.Warn("sandbox has gaps", "reason", gapNames(gaps),
			"hint", "see docs/security.md; cgroup version 2 and Landlock close them")
	}
	s.baseBinds, s.baseLinks = baseRoot(python, cfg.SiteDirs)
	return s, nil
}

// pythonFor returns the interpreter of executions in an environment, nil if there is
// none.
func (s *specs) pythonFor(x *environment) *python {
	if x != nil && x.python != nil {
		return x.python
	}
	return s.python
}

// of returns the spec for the supervisor of the work.
func (s *specs) of(work compute.Work, bundle *compute.Bundle, res *resources, dir string) *supervise.Spec {
	limits := limitsOf(work, s.cfg.HostCPUs, s.cfg.HostMemoryMiB)
	execution, attempt := work.Execution, work.Attempt
	grace := s.cfg.StopGrace
	if c := execution.Container; c != nil && c.Grace > 0 {
		grace = c.Grace
	}
	if paid := execution.PaidGrace(); paid > 0 {
		grace = min(grace, paid)
	}
	spec := &supervise.Spec{
		Execution: attempt.Execution, Epoch: attempt.Epoch, PlaceIndex: attempt.PlaceIndex,
		Slot: res.slot.Number, GPUs: len(attempt.GPUs),
		Group:     cmp.Or(res.group, s.groups.Name(live.KeyOf(attempt))),
		MemoryMiB: limits.memoryMiB, CPUMilli: limits.cpuMilli, Pids: maxPids, Simulated: limits.simulated,
		Timeout: execution.Timeout, StopGrace: grace,
		JoinNetwork: res.network != nil, Variables: res.variables != nil, Notes: res.notes, Storage: res.mounted,
	}
	if serving := execution.Serving; serving != nil {
		spec.Serving = &supervise.Serving{
			Port: serving.Port, HealthPath: serving.HealthPath,
			ReadinessTimeout: serving.ReadinessTimeout, ProbeEvery: cmp.Or(s.cfg.ProbeEvery, supervise.ProbeEvery),
		}
	}
	if res.container != nil {
		spec.Container, spec.Pids = res.container, containerPids
		spec.Sandbox = sandbox.Spec{
			Env: containerEnvironment(work, bundle, res.container), ScratchDisk: res.disk != nil,
		}
		return spec
	}
	s.boxIn(spec, work, bundle, res, dir)
	return spec
}

// boxIn adds the sandbox of the work to its spec.
func (s *specs) boxIn(spec *supervise.Spec, work compute.Work, bundle *compute.Bundle, res *resources, dir string) {
	spec.Cgroups = s.groups.Host
	spec.Sandbox = sandbox.Spec{
		UIDBase: res.slot.UID(), Hostname: hostname, OwnNetwork: res.network == nil,
		WorkSource: filepath.Join(dir, supervise.WorkFile),
		ScratchMiB: s.memoryScratchMiB(spec.MemoryMiB), ScratchDisk: res.disk != nil,
		Argv: argv(s.pythonFor(res.environment), bundle), Env: s.variables(work, bundle, res),
		MaxProcs: maxPids, MaxFiles: maxFiles,
		Seccomp: s.seccomp, Landlock: s.landlock,
		Files: append(s.pythonFor(res.environment).files(bundle), ownFiles(res.resolv)...),
	}
	if res.early {
		spec.Sandbox.Early = &sandbox.Early{
			Argv: s.pythonFor(res.environment).earlyArgv(), Env: pairs(s.interpreterVariables(nil, res)),
		}
		spec.Sandbox.Argv = spec.Sandbox.Argv[len(spec.Sandbox.Early.Argv):]
	}
	if res.packages != nil {
		spec.MountAt = packagesAt
	}
	spec.Sandbox.Binds, spec.Sandbox.Links = s.binds(work)
	res.environment.bind(&spec.Sandbox)
	bindNotice(work, spec, filepath.Join(dir, supervise.NoticeDir))
}

// argv returns the command line of the bundle with an interpreter.
func argv(p *python, bundle *compute.Bundle) []string {
	if needsPython(bundle) {
		return p.argv(bundle)
	}
	return commandArgv(bundle.Command)
}

// memoryScratchMiB returns the size of scratch space in memory. It counts against
// the memory limit and is smaller, so that a full one is an I/O error before it is
// an OOM kill.
func (s *specs) memoryScratchMiB(memoryMiB int64) int64 {
	size := max(memoryMiB/2, 1)
	if s.cfg.ScratchMiB > 0 {
		size = min(size, s.cfg.ScratchMiB)
	}
	return size
}

func ownFiles(resolv string) []sandbox.File {
	files := []sandbox.File{
		{Path: "/etc/passwd", Text: passwd, Mode: 0o444},
		{Path: "/etc/group", Text: group, Mode: 0o444},
		{Path: "/etc/hosts", Text: hosts, Mode: 0o444},
		{Path: "/etc/hostname", Text: hostname + "\n", Mode: 0o444},
		{Path: "/etc/nsswitch.conf", Text: nsswitch, Mode: 0o444},
	}
	return append(files, sandbox.File{Path: "/etc/resolv.conf", Text: resolv, Mode: 0o444})
}

// binds returns the bind mounts and links of the work's root.
func (s *specs) binds(work compute.Work) ([]sandbox.Bind, []sandbox.Link) {
	binds, links := slices.Clone(s.baseBinds), slices.Clone(s.baseLinks)
	for _, gpu := range work.GPUs {
		if gpu.Simulated {
			continue
		}
		// A slice has the index of its device, and its own capability devices.
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

// baseRoot returns the bind mounts and links of every root of this node.
func baseRoot(p *python, siteDirs []string) ([]sandbox.Bind, []sandbox.Link) {
	var binds []sandbox.Bind
	links := []sandbox.Link{
		{Path: "/dev/fd", Target: "/proc/self/fd"},
		{Path: "/dev/stdin", Target: "/proc/self/fd/0"},
		{Path: "/dev/stdout", Target: "/proc/self/fd/1"},
		{Path: "/dev/stderr", Target: "/proc/self/fd/2"},
		{Path: "/dev/ptmx", Target: "pts/ptmx"},
	}
	bind := func(name string) {
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
		bind(name)
	}
	for _, name := range systemFiles() {
		bind(name)
	}
	own := slices.Clone(siteDirs)
	if p != nil {
		own = append(own, p.Prefixes...)
	}
	slices.Sort(own) // Parents before children.
	for _, name := range own {
		binds = add(binds, sandbox.Bind{Source: name, Target: name})
	}
	for _, name := range devices() {
		binds = append(binds, deviceBind(name)...)
	}
	return binds, links
}

// add adds the bind mount unless another one already contains it.
func add(binds []sandbox.Bind, b sandbox.Bind) []sandbox.Bind {
	for _, have := range binds {
		if have.Source == have.Target && b.Source == b.Target && sandbox.Contains(have.Target, b.Target) {
			return binds
		}
	}
	return append(binds, b)
}

// deviceBind returns the bind mount of a device, none if the device does not exist.
func deviceBind(name string) []sandbox.Bind {
	if _, err := os.Stat(name); err != nil {
		return nil
	}
	return []sandbox.Bind{{Source: name, Target: name, Device: true}}
}

// gpuVariables returns the variables that describe the GPUs to the code: the
// driver's UUIDs of the devices or MIG slices, and the share of each. All shares
// are equal. The memory is that of the smallest.
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

// variables returns the variables of the code: those of a plain shell, of the
// bundle and of Berth. Later ones replace earlier ones.
func (s *specs) variables(work compute.Work, bundle *compute.Bundle, res *resources) []string {
	env := s.interpreterVariables(bundle.Env, res)
	addOwn(env, work)
	return pairs(env)
}

// interpreterVariables returns the variables without those of the work.
func (s *specs) interpreterVariables(given map[string]string, res *resources) map[string]string {
	search := searchPath
	if p := s.pythonFor(res.environment); p != nil {
		search = filepath.Dir(p.Executable) + ":" + search
	}
	env := map[string]string{
		"PATH": search,
		"HOME": sandbox.WorkDir, "USER": "berth", "LOGNAME": "berth", "SHELL": "/bin/sh",
		"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1",
	}
	addVariables(env, given)
	dirs := slices.Clone(s.cfg.SiteDirs)
	if dir := res.environment.siteDir(); dir != "" {
		dirs = slices.Insert(dirs, 0, dir)
	}
	if res.packages != nil {
		dirs = slices.Insert(dirs, 0, packagesAt+"/"+packages.SiteDir)
		env["PATH"] = packagesAt + "/" + packages.SiteDir + "/bin:" + env["PATH"]
	}
	if len(dirs) > 0 {
		env["PYTHONPATH"] = strings.TrimPrefix(env["PYTHONPATH"]+":"+strings.Join(dirs, ":"), ":")
	}
	return env
}

// addVariables adds the variables of a bundle, those that a process can have.
func addVariables(env, given map[string]string) {
	for name, value := range given {
		if name != "" && !strings.ContainsAny(name, "=\x00") && !strings.ContainsRune(value, 0) &&
			!strings.HasPrefix(name, ownVariable) {
			env[name] = value
		}
	}
}

// addOwn adds the variables that Berth sets for the work.
func addOwn(env map[string]string, work compute.Work) {
	if serving := work.Execution.Serving; serving != nil {
		env["PORT"] = strconv.Itoa(serving.Port)
	}
	env["BERTH_EXECUTION_ID"] = work.Execution.ID.String()
	env["BERTH_ATTEMPT"] = strconv.FormatUint(work.Attempt.Epoch, 10)
	maps.Copy(env, gpuVariables(work))
}

// pairs returns the variables as a process takes them, sorted.
func pairs(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// containerEnvironment returns the variables of code in a container: those of the
// bundle and of Berth. The image has the rest.
func containerEnvironment(w compute.Work, bundle *compute.Bundle, c *supervise.Container) []string {
	env := make(map[string]string)
	if c.Image != nil && !c.Image.Home {
		env["HOME"] = sandbox.WorkDir
	}
	addVariables(env, bundle.Env)
	maps.DeleteFunc(env, func(name, _ string) bool { return strings.HasPrefix(name, composefile.GPUVariables) })
	addOwn(env, w)
	env["NVIDIA_VISIBLE_DEVICES"] = cmp.Or(strings.Join(c.GPUs, ","), noGPUs)
	return pairs(env)
}
