package composefile

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// Image is an image as it is on the engine.
type Image struct {
	ID      string
	Volumes []string // Directories that it declares as volumes.
	Home    bool     // It sets HOME.
}

// Frame has the things that an execution adds to the services of a file: limits,
// isolation, and its own network, volumes and images on the engine.
type Frame struct {
	Project   string            // Name of the project: unique on the engine.
	Labels    map[string]string // Labels of everything that is made.
	Network   string            // The network with a way out, which exists; "none" for none.
	Internal  []Network         // Networks without a way out, one for each of Internal; none if the machine makes none.
	Parent    string            // The cgroup or slice of all containers.
	Runtime   string
	Seccomp   string            // A file with the profile; "" for the engine's own.
	Images    map[string]Image  // By whole name.
	Devices   []string          // A loop device for each of Volumes.
	Binds     []Bind            // Directories of the machine in every container, as the execution asked.
	Variables map[string]string // Variables of every service that does not set them, interpolated by the engine.
	GPUs      []string          // The devices to hand out, by UUID; none if they are simulated.
	MemoryMiB int64
	CPUMilli  int64 // For each service; 0 if Parent limits all together.
	Pids      int64
	MaxFiles  int64
	TmpMiB    int64         // Size of each directory in memory.
	Grace     time.Duration // How long a service that names no stop_grace_period has from its stop signal to SIGKILL.
}

// Network is a network without a way out, which Docker Compose makes.
type Network struct {
	Name   string // On the engine.
	Link   string // Name of its bridge on the machine, which has no address there.
	Subnet string
	Labels map[string]string // Beside those of everything.
}

// Bind is a directory of the machine that containers see.
type Bind struct {
	Source   string
	Target   string
	ReadOnly bool
}

const (
	sticky   = 0o1777
	oomScore = 500
	homeDir  = "/tmp"
)

// Emit returns the file that Docker Compose executes, as JSON, which is YAML too. Only
// the parts of the user's file that Parse allowed are in it.
func (f *File) Emit(frame *Frame) ([]byte, error) {
	services := make(map[string]any, len(f.Services))
	gpus := slices.Clone(frame.GPUs)
	for _, s := range f.Services {
		config := f.project.Services[s.Name]
		mine := frame.GPUs
		if s.GPUs != AllGPUs {
			mine = gpus[:min(s.GPUs*s.Scale, len(gpus))]
			gpus = gpus[len(mine):]
		}
		image, ok := frame.Images[s.Image]
		if !ok {
			return nil, fmt.Errorf("emit compose file: no image %s", s.Image)
		}
		services[s.Name] = f.service(&s, &config, &image, frame, mine)
	}
	volumes := make(map[string]any, len(f.Volumes))
	for i, name := range f.Volumes {
		if i >= len(frame.Devices) {
			return nil, fmt.Errorf("emit compose file: no device for volume %s", name)
		}
		volumes[name] = map[string]any{
			"driver": "local", "labels": frame.Labels,
			"driver_opts": map[string]string{"type": "ext4", "device": frame.Devices[i], "o": "nosuid,nodev"},
		}
	}
	file := map[string]any{"name": frame.Project, "services": services, "volumes": volumes}
	if networks := f.networks(frame); len(networks) > 0 {
		file["networks"] = networks
	}
	return json.Marshal(file)
}

// service returns one service of the file.
func (f *File) service(s *Service, c *types.ServiceConfig, image *Image, frame *Frame, gpus []string) map[string]any {
	out := map[string]any{
		"image": image.ID, "pull_policy": "never", "restart": "no", "labels": frame.Labels,
		"cap_drop": []string{"ALL"}, "security_opt": security(frame), "read_only": true,
		"cgroup_parent": frame.Parent, "pids_limit": frame.Pids, "oom_score_adj": oomScore,
		"ulimits": map[string]any{"nofile": frame.MaxFiles, "core": 0},
		"logging": map[string]any{
			"driver": "local", "options": map[string]string{"max-size": "1m", "max-file": "1", "compress": "false"},
		},
		"ipc": "private", "shm_size": frame.TmpMiB << 20, "scale": s.Scale,
		"environment": environment(c, image, frame, gpus),
		"volumes":     f.mounts(c, image, frame),
	}
	memory := limitOf(int64(c.MemLimit), deployMemory(c), frame.MemoryMiB<<20)
	out["mem_limit"], out["memswap_limit"] = memory, memory // No swap.
	if frame.Runtime != "" {
		out["runtime"] = frame.Runtime
	}
	f.connect(out, c, frame)
	if len(gpus) > 0 {
		out["deploy"] = map[string]any{"resources": map[string]any{"reservations": map[string]any{
			"devices": []any{map[string]any{"driver": "nvidia", "device_ids": gpus, "capabilities": []string{"gpu"}}},
		}}}
	}
	if cpus := cpusOf(c, frame); cpus > 0 {
		out["cpus"] = cpus
	}
	own(out, c)
	if c.StopGracePeriod == nil && frame.Grace > 0 { // Docker Compose gives 10 seconds.
		out["stop_grace_period"] = frame.Grace.String()
	}
	return out
}

// own adds the file's settings of a service's program.
func own(out map[string]any, c *types.ServiceConfig) {
	text := func(key, value string) {
		if value != "" {
			out[key] = plain(value)
		}
	}
	text("working_dir", c.WorkingDir)
	text("user", c.User)
	text("hostname", c.Hostname)
	text("stop_signal", c.StopSignal)
	if c.Command != nil {
		out["command"] = plainAll(c.Command)
	}
	if c.Entrypoint != nil {
		out["entrypoint"] = plainAll(c.Entrypoint)
	}
	if c.StopGracePeriod != nil {
		out["stop_grace_period"] = c.StopGracePeriod.String()
	}
	if c.Init != nil {
		out["init"] = *c.Init
	}
	if len(c.DependsOn) > 0 {
		depends := make(map[string]any, len(c.DependsOn))
		for name, d := range c.DependsOn {
			depends[name] = map[string]any{"condition": d.Condition, "required": d.Required}
		}
		out["depends_on"] = depends
	}
	if h := c.HealthCheck; h != nil {
		out["healthcheck"] = health(h)
	}
}

// health returns the health check of a service.
func health(h *types.HealthCheckConfig) map[string]any {
	if h.Disable {
		return map[string]any{"disable": true}
	}
	out := map[string]any{"test": plainAll(h.Test)}
	for key, d := range map[string]*types.Duration{
		"interval": h.Interval, "timeout": h.Timeout, "start_period": h.StartPeriod, "start_interval": h.StartInterval,
	} {
		if d != nil {
			out[key] = d.String()
		}
	}
	if h.Retries != nil {
		out["retries"] = *h.Retries
	}
	return out
}

// security returns the options of the kernel's security modules.
func security(frame *Frame) []string {
	options := []string{"no-new-privileges:true"}
	if frame.Seccomp != "" {
		options = append(options, "seccomp:"+frame.Seccomp)
	}
	return options
}

// environment returns the variables of a service. Those of the file override those of the
// execution, and Berth's own override both. By those that begin with NVIDIA_ the engine's
// runtime hands out devices: no user sets them.
func environment(c *types.ServiceConfig, image *Image, frame *Frame, gpus []string) map[string]string {
	env := make(map[string]string)
	if !image.Home {
		env["HOME"] = homeDir
	}
	for name, value := range frame.Variables {
		env[name] = value // Interpolated from the environment of Docker Compose.
	}
	for name, value := range c.Environment {
		if value != nil && !strings.HasPrefix(name, "BERTH_") && !strings.HasPrefix(name, GPUVariables) {
			env[name] = plain(*value)
		}
	}
	env["NVIDIA_VISIBLE_DEVICES"] = "void"
	if len(gpus) > 0 {
		env["NVIDIA_VISIBLE_DEVICES"] = strings.Join(gpus, ",")
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(gpus, ",")
	}
	return env
}

// mounts returns the mounts in the containers of a service: directories that the execution
// asked for, volumes of the file, and directories in memory.
func (f *File) mounts(c *types.ServiceConfig, image *Image, frame *Frame) []any {
	var all []any
	taken := make(map[string]bool)
	inMemory := func(target string) {
		target = path.Clean(target)
		if taken[target] || !path.IsAbs(target) {
			return
		}
		taken[target] = true
		all = append(all, map[string]any{
			"type": "tmpfs", "target": plain(target), "tmpfs": map[string]any{"size": frame.TmpMiB << 20, "mode": sticky},
		})
	}
	for _, b := range frame.Binds {
		taken[path.Clean(b.Target)] = true
		all = append(all, map[string]any{
			"type": "bind", "source": plain(b.Source), "target": plain(b.Target), "read_only": b.ReadOnly,
			"bind": map[string]any{"propagation": "rprivate", "create_host_path": false, "recursive": "disabled"},
		})
	}
	for _, v := range c.Volumes {
		if taken[path.Clean(v.Target)] {
			continue // The API refuses it.
		}
		if v.Type == types.VolumeTypeTmpfs || v.Source == "" {
			inMemory(v.Target)
			continue
		}
		taken[path.Clean(v.Target)] = true
		all = append(all, map[string]any{
			"type": "volume", "source": v.Source, "target": plain(v.Target), "read_only": v.ReadOnly,
			"volume": map[string]any{"nocopy": true},
		})
	}
	for _, t := range c.Tmpfs {
		target, _, _ := strings.Cut(t, ":")
		inMemory(target)
	}
	for _, target := range append([]string{"/tmp", "/var/tmp", "/run"}, image.Volumes...) {
		inMemory(target)
	}
	return all
}

// limitOf returns the least limit that is set.
func limitOf(limits ...int64) int64 {
	least := limits[len(limits)-1]
	for _, l := range limits {
		if l > 0 {
			least = min(least, l)
		}
	}
	return least
}

func deployMemory(c *types.ServiceConfig) int64 {
	if c.Deploy == nil || c.Deploy.Resources.Limits == nil {
		return 0
	}
	return int64(c.Deploy.Resources.Limits.MemoryBytes)
}

// cpusOf returns the limit of a service's processor time in cores, the least of those that are
// set: where systemd makes the cgroups, that of the execution is no other's. 0 is none.
func cpusOf(c *types.ServiceConfig, frame *Frame) float64 {
	least := float64(frame.CPUMilli) / 1000
	limits := []float64{float64(c.CPUS)}
	if c.Deploy != nil && c.Deploy.Resources.Limits != nil {
		limits = append(limits, float64(c.Deploy.Resources.Limits.NanoCPUs))
	}
	for _, l := range limits {
		if l > 0 && (least == 0 || l < least) {
			least = l
		}
	}
	return least
}

// plain returns a text that Docker Compose does not interpolate.
func plain(text string) string { return strings.ReplaceAll(text, "$", "$$") }

func plainAll(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = plain(text)
	}
	return out
}

// Interpolated returns variables whose values are those of the environment of Docker
// Compose, under names that mean nothing to it, and that environment.
func Interpolated(values map[string]string) (variables map[string]string, environment []string) {
	variables = make(map[string]string, len(values))
	for i, name := range slices.Sorted(maps.Keys(values)) {
		alias := "BERTH_VALUE_" + strconv.Itoa(i)
		variables[name] = "${" + alias + "}"
		environment = append(environment, alias+"="+values[name])
	}
	return variables, environment
}
