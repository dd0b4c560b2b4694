package prepare

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"berth/composefile"
	"berth/compute"
	"berth/node/executor/egress"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

func TestLimitsOf(t *testing.T) {
	simulated := func(speed, share int) compute.Work {
		return compute.Work{
			Attempt:   &compute.Attempt{GPUs: []compute.GPUShare{{GPU: "a", Milli: share}, {GPU: "b", Milli: share}}},
			Execution: &compute.Execution{Request: compute.Request{VCPUMilli: 16_000, MemoryMiB: 128 << 10}},
			GPUs: []compute.GPU{
				{ID: "a", Simulated: true, SpeedMilli: speed}, {ID: "b", Simulated: true, SpeedMilli: speed},
			},
		}
	}
	plain := func(vcpu, memory int64) compute.Work {
		return compute.Work{
			Attempt:   &compute.Attempt{},
			Execution: &compute.Execution{Request: compute.Request{VCPUMilli: vcpu, MemoryMiB: memory}},
		}
	}
	for _, test := range []struct {
		name string
		work compute.Work
		want limits
	}{
		{"as declared", plain(2000, 4096), limits{4096, 2000, false}},
		{"nothing declared", plain(0, 0), limits{2048, 1000, false}},
		{"more than there is", plain(64_000, 1<<20), limits{24 << 10, 2000, false}},
		{"two whole simulated GPUs", simulated(1000, 1000), limits{3 << 10, 1000, true}},
		{"two shares of slow ones", simulated(120, 500), limits{3 << 10, 60, true}},
		{"next to nothing", simulated(120, 1), limits{3 << 10, 1, true}},
		{"fast ones on few CPUs", simulated(8000, 1000), limits{3 << 10, 2000, true}},
	} {
		if got := limitsOf(test.work, 2, 24<<10); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestBaseRoot(t *testing.T) {
	p := &python{Executable: "/opt/py/bin/python3", Prefixes: []string{"/opt/py", "/usr", "/opt/py"}}
	binds, _ := baseRoot(p, []string{"/opt/py/site", "/srv/site"})
	var targets []string
	for _, b := range binds {
		targets = append(targets, b.Target)
		if b.Writable {
			t.Errorf("%s is writable", b.Target)
		}
	}
	for target, want := range map[string]int{
		"/usr": 1, "/opt/py": 1, "/opt/py/site": 0, "/srv/site": 1, "/dev/null": 1, "/root": 0, "/home": 0,
		"/etc/shadow": 0, "/etc": 0,
	} {
		got := 0
		for _, have := range targets {
			if have == target {
				got++
			}
		}
		if got != want {
			t.Errorf("%s is shown %d times, want %d", target, got, want)
		}
	}
}

func TestContains(t *testing.T) {
	for _, test := range []struct {
		dir, name string
		want      bool
	}{{"/usr", "/usr", true}, {"/usr", "/usr/lib", true}, {"/usr", "/usrlocal", false}, {"/usr/lib", "/usr", false}} {
		if got := sandbox.Contains(test.dir, test.name); got != test.want {
			t.Errorf("Contains(%s, %s) = %v", test.dir, test.name, got)
		}
	}
}

// TestInternalNetworksFit checks that a slot has addresses for the internal networks of each
// Compose file that is accepted.
func TestInternalNetworksFit(t *testing.T) {
	if composefile.MaxInternal > egress.InternalOfSlot {
		t.Errorf("a file may have %d internal networks, and a slot has %d", composefile.MaxInternal, egress.InternalOfSlot)
	}
}

func TestConfigIsChecked(t *testing.T) {
	id := compute.NodeID{UUID: compute.UUID{1}}
	for name, cfg := range map[string]Config{
		"no directory":         {Node: id},
		"no node":              {DataDir: "/tmp"},
		"site dir missing":     {DataDir: "/tmp", Node: id, SiteDirs: []string{"/no/such"}},
		"site dir relative":    {DataDir: "/tmp", Node: id, SiteDirs: []string{"."}},
		"mount of the root":    {DataDir: "/tmp", Node: id, Mounts: []Mount{{Name: "x", Path: "/"}}},
		"mount name a path":    {DataDir: "/tmp", Node: id, Mounts: []Mount{{Name: "a/b", Path: "/tmp"}}},
		"mount name climbs":    {DataDir: "/tmp", Node: id, Mounts: []Mount{{Name: "..", Path: "/tmp"}}},
		"mount does not exist": {DataDir: "/tmp", Node: id, Mounts: []Mount{{Name: "x", Path: "/no/such"}}},
	} {
		if err := cfg.SetDefaults(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEnvironmentIsOurs(t *testing.T) {
	s := &specs{cfg: new(Config), python: &python{Executable: "/opt/py/bin/python3"}}
	w := compute.Work{Attempt: &compute.Attempt{Epoch: 2}, Execution: &compute.Execution{ID: compute.ExecutionID{UUID: compute.UUID{1}}}}
	env := s.variables(w, &compute.Bundle{Env: map[string]string{
		"A": "1", "HOME": "/x", "B=C": "2", "": "3", "D": "a\x00b", "BERTH_ATTEMPT": "9", "CUDA_VISIBLE_DEVICES": "0",
	}}, new(resources))
	for _, want := range []string{"A=1", "HOME=/x", "BERTH_ATTEMPT=2", "CUDA_VISIBLE_DEVICES=", "BERTH_GPUS="} {
		if !slices.Contains(env, want) {
			t.Errorf("%q is not in %q", want, env)
		}
	}
	for _, v := range env {
		if strings.HasPrefix(v, "D=") || strings.HasPrefix(v, "B=") || strings.HasPrefix(v, "=") {
			t.Errorf("%q is in the environment", v)
		}
	}
}

func TestVolumes(t *testing.T) {
	s := openVolumes([]Mount{
		{Name: "data", Path: "/srv/data", ReadOnly: true}, {Name: "out", Path: "/srv/out"}, {Name: "all", Path: "/srv/all", Always: true}, {Name: "other", Path: "/srv/other"},
	})
	got, err := s.binds(&compute.Execution{Volumes: []compute.Volume{
		{Name: "out", Path: "/work/in/out"}, {Name: "out", ReadOnly: true}, {Name: "data"}, {Name: "data", Path: "/work/in"},
	}})
	want := []sandbox.Bind{
		{Source: "/srv/out", Target: "/mnt/out"},
		{Source: "/srv/data", Target: "/work/in"},
		{Source: "/srv/all", Target: "/mnt/all", Writable: true},
		{Source: "/srv/data", Target: "/mnt/data"},
		{Source: "/srv/out", Target: "/work/in/out", Writable: true},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the volumes are %+v, %v", got, err)
	}
	if _, err := s.binds(&compute.Execution{Volumes: []compute.Volume{{Name: "gone"}}}); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("a volume that the node has not: %v", err)
	}
}

func TestMountsBelow(t *testing.T) {
	const (
		root  = "1 0 8:1 / / rw - ext4 /dev/a rw\n"
		data  = "2 1 8:2 / /srv/my\\040data rw - ext4 /dev/b rw\n"
		below = "3 2 0:9 / /srv/my\\040data/x rw - tmpfs none rw\n"
		other = "4 1 0:8 / /srv/my\\040data2 rw - tmpfs none rw\n"
	)
	for dir, want := range map[string]string{
		"/": root + data + below + other, "/srv": data + below + other, "/srv/my data": data + below, "/srv/my data/x/y": "", "/sr": "",
	} {
		if got := mountsBelow([]byte(root+data+below+other), dir); got != want {
			t.Errorf("%s:\n%s, want\n%s", dir, got, want)
		}
	}
}

// TestSilentVolume has a volume of all executions that does not answer: starts do without a warm sandbox.
func TestSilentVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &warmer{cfg: new(Config), volumes: openVolumes([]Mount{{Name: "data", Path: "/", Always: true}})}
		work := compute.Work{Execution: new(compute.Execution), Attempt: new(compute.Attempt)}
		if key, ok := m.keyFor(work, new(compute.Bundle), true); !ok || key.mounts == "" {
			t.Errorf("a volume that answers: %+v, %v", key, ok)
		}
		synctest.Wait()
		m.volumes.looking <- struct{}{} // Somebody looks, and gets no answer.
		if _, ok := m.keyFor(work, new(compute.Bundle), true); ok {
			t.Error("an attempt may have a warm sandbox, though nobody knows what is mounted")
		}
	})
}

// TestWarmSandboxIsLate takes a sandbox that is not made in time: the attempt starts without it,
// and the next one has it.
func TestWarmSandboxIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool warmPool
		key, made := warmKey{memoryMiB: 1}, new(warmSandbox)
		place := pool.begin(key)
		if w := pool.take(key); w != nil {
			t.Fatalf("a sandbox that is not made: %+v", w)
		}
		pool.finish(place, made)
		if w := pool.take(key); w != made {
			t.Fatalf("the next attempt has %+v", w)
		}
		if w := pool.take(key); w != nil {
			t.Fatalf("a sandbox is used twice: %+v", w)
		}
	})
}

// TestStartsEarly starts no interpreter ahead that would execute something of the user's when it
// starts, or would start otherwise.
func TestStartsEarly(t *testing.T) {
	plain := func() (*compute.Execution, *compute.Bundle) {
		return new(compute.Execution), &compute.Bundle{Code: "pass", Env: map[string]string{"A": "1"}, ImportFiles: map[string]string{"a.py": ""}}
	}
	for name, change := range map[string]func(*compute.Execution, *compute.Bundle){
		"nothing":        func(_ *compute.Execution, b *compute.Bundle) { b.Code = "" },
		"packages":       func(_ *compute.Execution, b *compute.Bundle) { b.Requirements = "x==1" },
		"an environment": func(x *compute.Execution, _ *compute.Bundle) { x.Environment.Name = "e" },
		"storage":        func(x *compute.Execution, _ *compute.Bundle) { x.Storage = new(compute.StorageMount) },
		"a volume": func(x *compute.Execution, _ *compute.Bundle) {
			x.Volumes = []compute.Volume{{Name: "v", Path: "/work/.local"}}
		},
		"uploaded files":  func(x *compute.Execution, _ *compute.Bundle) { x.Files = new(compute.Files) },
		"a variable":      func(_ *compute.Execution, b *compute.Bundle) { b.Env["PYTHONSTARTUP"] = "x" },
		"of a package":    func(_ *compute.Execution, b *compute.Bundle) { b.Env["COVERAGE_PROCESS_START"] = "x" },
		"own packages":    func(_ *compute.Execution, b *compute.Bundle) { b.ImportFiles["./.local/lib/x.pth"] = "" },
		"stored packages": func(_ *compute.Execution, b *compute.Bundle) { b.StoredFiles = map[string][]byte{".local/x": nil} },
		"many variables":  func(_ *compute.Execution, b *compute.Bundle) { b.Env["X"] = strings.Repeat("x", maxEarlyBytes) },
	} {
		x, b := plain()
		if change(x, b); startsEarly(x, b, nil) {
			t.Errorf("%s: the interpreter starts early", name)
		}
	}
	x, b := plain()
	if !startsEarly(x, b, []compute.EnvVariable{{Name: "B", Value: "2"}}) {
		t.Error("plain code: the interpreter starts late")
	}
	if startsEarly(x, b, []compute.EnvVariable{{Name: "LD_PRELOAD", Value: "2"}}) {
		t.Error("a variable that is kept: the interpreter starts early")
	}
	dir := t.TempDir()
	p := &Preparer{cfg: &Config{SiteDirs: []string{dir}}}
	if !p.startsEarly(x, b, nil) {
		t.Error("modules of the operator: the interpreter starts late")
	}
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p.startsEarly(x, b, nil) {
		t.Error("the operator's sitecustomize does not see the user's variables")
	}
	if b.Env = nil; !p.startsEarly(x, b, nil) {
		t.Error("without variables the interpreter starts late")
	}
}

// TestDeviceIDs hands a container the assigned GPUs by their UUIDs, whichever their indexes are,
// and no simulated ones.
func TestDeviceIDs(t *testing.T) {
	for _, test := range []struct {
		gpus []compute.GPU
		want []string
	}{
		{nil, nil},
		{[]compute.GPU{{ID: "GPU-a", Index: 3}, {ID: "GPU-b", Index: 1}}, []string{"GPU-a", "GPU-b"}},
		{[]compute.GPU{{ID: "MIG-a", Index: 0, Parent: "GPU-a", MIG: "1g_5gb"}}, []string{"MIG-a"}},
		{[]compute.GPU{{ID: "SIM-a-0", Simulated: true}}, nil},
	} {
		ids := deviceIDs(test.gpus)
		if !slices.Equal(ids, test.want) {
			t.Errorf("%v are %v, want %v", test.gpus, ids, test.want)
		}
		env := containerEnvironment(compute.Work{
			Execution: &compute.Execution{}, Attempt: &compute.Attempt{}, GPUs: test.gpus,
		}, &compute.Bundle{Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}}, &supervise.Container{GPUs: ids})
		if want := "NVIDIA_VISIBLE_DEVICES=" + cmp.Or(strings.Join(ids, ","), noGPUs); !slices.Contains(env, want) {
			t.Errorf("%v have the variables %v, want %s", test.gpus, env, want)
		}
	}
}
