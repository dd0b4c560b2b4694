package composefile_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/composefile"
)

const good = `
name: mine
x-common: &common
  environment: {A: "1", PRICE: "5$$"}
services:
  db:
    <<: *common
    image: postgres:16
    volumes: [data:/var/lib/postgresql/data]
    healthcheck: {test: [CMD, pg_isready], interval: 2s, retries: 5}
  web:
    image: registry.example.org/team/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    command: serve --port ${PORT}
    depends_on: {db: {condition: service_healthy}}
    deploy: {resources: {limits: {memory: 64M, cpus: "0.5"}, reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}
    tmpfs: /cache
volumes:
  data: {}
`

func TestParse(t *testing.T) {
	file, faults := composefile.Parse(good, map[string]string{"PORT": "8000"})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if n, all := file.GPUs(); n != 2 || all {
		t.Errorf("%d GPUs, all: %v", n, all)
	}
	want := []string{
		"docker.io/library/postgres:16",
		"registry.example.org/team/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	}
	if !slices.Equal(file.Images(), want) || !slices.Equal(file.Volumes, []string{"data"}) {
		t.Errorf("images %v, volumes %v", file.Images(), file.Volumes)
	}
}

// TestEmit checks that the emitted file has the isolation of the frame and the values of
// the user's file.
func TestEmit(t *testing.T) {
	file, faults := composefile.Parse(good, map[string]string{"PORT": "8000"})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	images := make(map[string]composefile.Image)
	for i, ref := range file.Images() {
		images[ref] = composefile.Image{ID: fmt.Sprint("sha256:", i), Volumes: []string{"/var/lib/postgresql/data", "/extra"}}
	}
	text, err := file.Emit(&composefile.Frame{
		Project: "berth-1", Labels: map[string]string{"berth.attempt": "1"}, Network: "net", Parent: "/berth/1",
		Images: images, Devices: []string{"/dev/loop7"}, Variables: map[string]string{"SECRET": "${BERTH_VALUE_0}"},
		Binds: []composefile.Bind{{Source: "/run/x", Target: "/mnt/s3"}}, GPUs: []string{"GPU-a", "GPU-b"}, MemoryMiB: 1024, Pids: 100, MaxFiles: 1000, TmpMiB: 64,
		Grace: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Services map[string]map[string]any
		Volumes  map[string]map[string]any
		Networks map[string]map[string]any
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	for name, s := range out.Services {
		if s["stop_grace_period"] == nil {
			t.Errorf("service %s has no grace: %v", name, s)
		}
		if s["read_only"] != true || fmt.Sprint(s["cap_drop"]) != "[ALL]" || s["cgroup_parent"] != "/berth/1" ||
			!strings.Contains(fmt.Sprint(s["security_opt"]), "no-new-privileges") || s["pids_limit"] != 100.0 {
			t.Errorf("service %s is not isolated: %v", name, s)
		}
		if !strings.Contains(fmt.Sprint(s["volumes"]), "source:/run/x target:/mnt/s3 type:bind") {
			t.Errorf("service %s does not see what the execution asked for: %v", name, s["volumes"])
		}
	}
	web, db := out.Services["web"], out.Services["db"]
	if devices := fmt.Sprint(web["deploy"]); !strings.Contains(devices, "device_ids:[GPU-a GPU-b]") || db["deploy"] != nil && strings.Contains(fmt.Sprint(db["deploy"]), "GPU-") {
		t.Errorf("the GPUs of web are %v, those of db %v", devices, db["deploy"])
	}
	if fmt.Sprint(web["command"]) != "[serve --port 8000]" || web["mem_limit"] != float64(64<<20) {
		t.Errorf("web is %v", web)
	}
	env := db["environment"].(map[string]any)
	if env["PRICE"] != "5$$" || env["SECRET"] != "${BERTH_VALUE_0}" || env["A"] != "1" {
		t.Errorf("variables of db are %v", env)
	}
	if out.Volumes["data"]["driver_opts"].(map[string]any)["device"] != "/dev/loop7" || out.Networks["outside"]["external"] != true {
		t.Errorf("volumes %v, networks %v", out.Volumes, out.Networks)
	}
	again, faults := composefile.Parse(string(text), nil)
	if again != nil || len(faults) == 0 {
		t.Error("what is emitted has privileged keys, and a user may send it")
	}
}

// TestGPUs hands each service its GPUs, and a service that asks for all of them gets all,
// wherever it is in the file. No variable of a user names others.
func TestGPUs(t *testing.T) {
	file, faults := composefile.Parse(`
services:
  a: {image: probe, gpus: [{count: 1}], environment: {NVIDIA_DRIVER_CAPABILITIES: all, NVIDIA_VISIBLE_DEVICES: all, MINE: x}}
  b: {image: probe, gpus: all, environment: [NVIDIA_IMEX_CHANNELS=0]}
  c: {image: probe, gpus: [{count: 2}]}
  d: {image: probe, scale: 2, environment: {NVIDIA_VISIBLE_DEVICES: all, NVIDIA_MIG_CONFIG_DEVICES: all}}
`, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	text, err := file.Emit(&composefile.Frame{
		Network: "net", Images: map[string]composefile.Image{"docker.io/library/probe:latest": {ID: "sha256:0"}},
		GPUs: []string{"0", "1", "2", "3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Services map[string]struct {
			Environment map[string]string
			Deploy      any
		}
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "0", "b": "0,1,2,3", "c": "1,2", "d": "void"} {
		s := out.Services[name]
		ids := "device_ids:[" + strings.ReplaceAll(want, ",", " ") + "]"
		if s.Environment["NVIDIA_VISIBLE_DEVICES"] != want || strings.Contains(fmt.Sprint(s.Deploy), ids) == (want == "void") {
			t.Errorf("%s has %v, and sees %s", name, s.Deploy, s.Environment["NVIDIA_VISIBLE_DEVICES"])
		}
		for variable := range s.Environment {
			if strings.HasPrefix(variable, "NVIDIA_") && variable != "NVIDIA_VISIBLE_DEVICES" {
				t.Errorf("%s has %s", name, variable)
			}
		}
	}
	if out.Services["a"].Environment["MINE"] != "x" {
		t.Error("another variable is dropped")
	}
}

// TestLimits gives each service the least of the file's and of the execution's limits. None
// swaps.
func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		line   string
		milli  int64
		cpus   any
		memory float64
	}{
		"none":                    {"", 1500, 1.5, 1024 << 20},
		"less":                    {"cpus: 0.5, mem_limit: 64M", 1500, 0.5, 64 << 20},
		"more":                    {"cpus: 8, mem_limit: 64G", 1500, 1.5, 1024 << 20},
		"less in deploy":          {"deploy: {resources: {limits: {cpus: '0.25', memory: 32M}}}", 1500, 0.25, 32 << 20},
		"more in deploy":          {"deploy: {resources: {limits: {cpus: '64'}}}", 1500, 1.5, 1024 << 20},
		"the execution has none":  {"", 0, nil, 1024 << 20},
		"the file alone has some": {"cpus: 2", 0, 2.0, 1024 << 20},
	} {
		file, faults := composefile.Parse("services: {web: {image: probe, "+test.line+"}}", nil)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		text, err := file.Emit(&composefile.Frame{
			Network: "net", Images: map[string]composefile.Image{"docker.io/library/probe:latest": {ID: "sha256:0"}},
			MemoryMiB: 1024, CPUMilli: test.milli,
		})
		if err != nil {
			t.Fatal(err)
		}
		var out struct{ Services map[string]map[string]any }
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		web := out.Services["web"]
		if web["cpus"] != test.cpus || web["mem_limit"] != test.memory || web["memswap_limit"] != test.memory {
			t.Errorf("%s: %v cores, memory %v, with swap %v", name, web["cpus"], web["mem_limit"], web["memswap_limit"])
		}
	}
}

// refusals are services that are refused, and where the fault is.
var refusals = []struct {
	key, line string
	column    int
}{
	{"privileged", "privileged: true", 5},
	{"cap_add", "cap_add: [SYS_ADMIN]", 5},
	{"cap_drop", "cap_drop: []", 5},
	{"security_opt", "security_opt: [seccomp:unconfined]", 5},
	{"devices", "devices: [/dev/kvm]", 5},
	{"device_cgroup_rules", "device_cgroup_rules: ['c 1:3 mr']", 5},
	{"group_add", "group_add: [docker]", 5},
	{"sysctls", "sysctls: {net.core.somaxconn: 1}", 5},
	{"ulimits", "ulimits: {nproc: 1}", 5},
	{"userns_mode", "userns_mode: host", 5},
	{"oom_kill_disable", "oom_kill_disable: true", 5},
	{"oom_score_adj", "oom_score_adj: -1000", 5},
	{"pid", "pid: host", 5},
	{"ipc", "ipc: host", 5},
	{"uts", "uts: host", 5},
	{"cgroup", "cgroup: host", 5},
	{"cgroup_parent", "cgroup_parent: /", 5},
	{"network_mode", "network_mode: host", 5},
	{"network_mode", "network_mode: 'container:other'", 5},
	{"ports", "ports: ['80:80']", 5},
	{"build", "build: .", 5},
	{"env_file", "env_file: /etc/passwd", 5},
	{"label_file", "label_file: /etc/passwd", 5},
	{"secrets", "secrets: [x]", 5},
	{"configs", "configs: [x]", 5},
	{"extends", "extends: {file: /etc/passwd, service: x}", 5},
	{"volumes_from", "volumes_from: [other]", 5},
	{"external_links", "external_links: [db]", 5},
	{"extra_hosts", "extra_hosts: ['a:1.2.3.4']", 5},
	{"dns", "dns: 1.2.3.4", 5},
	{"provider", "provider: {type: x}", 5},
	{"models", "models: [x]", 5},
	{"runtime", "runtime: other", 5},
	{"isolation", "isolation: none", 5},
	{"storage_opt", "storage_opt: {size: 1G}", 5},
	{"logging", "logging: {driver: syslog}", 5},
	{"credential_spec", "credential_spec: {file: x}", 5},
	{"use_api_socket", "use_api_socket: true", 5},
	{"post_start", "post_start: [{command: x}]", 5},
	{"develop", "develop: {}", 5},
	{"pids_limit", "pids_limit: -1", 5},
	{"memswap_limit", "memswap_limit: -1", 5},
	{"cpuset", "cpuset: '0'", 5},
	{"blkio_config", "blkio_config: {weight: 1}", 5},
	{"mac_address", "mac_address: '02:42:ac:11:65:43'", 5},
	{"nonsense", "nonsense: 1", 5},
	{"volumes.0", "volumes: ['/:/host']", 15},
	{"volumes.0", "volumes: ['./x:/x']", 15},
	{"volumes.0", "volumes: ['~/x:/x']", 15},
	{"volumes.0", "volumes: ['${X}:/x']", 15},
	{"volumes.0", "volumes: [{type: bind, source: /, target: /x}]", 16},
	{"volumes.0", "volumes: [{type: npipe, source: x, target: /x}]", 16},
	{"deploy.placement", "deploy: {placement: {constraints: [x]}}", 14},
}

func TestRefusedKeys(t *testing.T) {
	for _, test := range refusals {
		text := "services:\n  web:\n    image: probe\n    " + test.line + "\n"
		file, faults := composefile.Parse(text, nil)
		if file != nil || len(faults) != 1 || faults[0].Line != 4 || faults[0].Column != test.column ||
			faults[0].Path != "services.web."+test.key {
			t.Errorf("%s: %+v", test.line, faults)
		}
	}
}

// TestBadFiles checks that invalid Compose files are refused with the place of the fault.
func TestBadFiles(t *testing.T) {
	var many strings.Builder
	many.WriteString("services:\n")
	for i := range 10_000 {
		fmt.Fprintf(&many, "  s%d: {image: x}\n", i)
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	for name, test := range map[string]struct {
		text, why string
		line      int
	}{
		"empty":               {"", "one YAML document", 0},
		"no mapping":          {"- a\n", "mapping", 1},
		"tabs":                {"services:\n\tweb: {image: x}\n", "tabs", 2},
		"syntax":              {"services: {web: [}\n", "not YAML", 1},
		"no services":         {"volumes: {}\n", "at least one service", 0},
		"no image":            {"services:\n  web: {command: x}\n", "image", 2},
		"bad image":           {"services:\n  web: {image: 'UPPER CASE'}\n", "not the name of an image", 2},
		"a node's image":      {"services:\n  web: {image: 'berth.pulled/team/x:1'}\n", "as its registry does", 2},
		"anchor":              {"services:\n  web: *nowhere\n", "unknown anchor", 2},
		"cycle":               {"services:\n  a: {image: x, depends_on: [b]}\n  b: {image: x, depends_on: [a]}\n", "cycle", 2},
		"unknown service":     {"services:\n  a: {image: x, depends_on: [gone]}\n", "gone", 2},
		"too many":            {many.String(), "at most 64 services", 66},
		"too large":           {strings.Repeat("#", composefile.MaxBytes+1), "at most", 0},
		"include":             {"include: [/etc/passwd]\nservices: {a: {image: x}}\n", "not on the nodes", 1},
		"secrets":             {"secrets: {a: {file: /etc/shadow}}\nservices: {a: {image: x}}\n", "not on the nodes", 1},
		"external volume":     {"services: {a: {image: x}}\nvolumes: {v: {external: true}}\n", "belongs to the machine", 2},
		"volume options":      {"services: {a: {image: x}}\nvolumes: {v: {driver_opts: {device: /}}}\n", "allowed here", 2},
		"volume driver":       {"services: {a: {image: x}}\nvolumes: {v: {driver: nfs}}\n", "one machine", 2},
		"external network":    {"services: {a: {image: x}}\nnetworks: {n: {external: true}}\n", "belongs to the machine", 2},
		"host network":        {"services: {a: {image: x}}\nnetworks: {n: {driver: host}}\n", "one machine", 2},
		"merged key":          {"x-a: &a {privileged: true}\nservices:\n  web:\n    <<: *a\n    image: x\n", "privileges", 4},
		"merged volume":       {"x-a: &a {volumes: ['/:/x']}\nservices:\n  web:\n    <<: *a\n    image: x\n", "machine", 1},
		"merged env file":     {"x-a: &a {env_file: /etc/hostname}\nservices:\n  web:\n    <<: *a\n    image: x\n", "not on the nodes", 4},
		"merged list":         {"x-a: &a {sysctls: {a: 1}}\nservices:\n  web:\n    <<: [*a]\n    image: x\n", "privileges", 4},
		"whole alias":         {"x-a: &a {image: x, env_file: /etc/hostname}\nservices:\n  web: *a\n", "not on the nodes", 1},
		"alias of all":        {"x-a: &a {web: {image: x, pre_start: [{env_file: /etc/hostname}]}}\nservices: *a\n", "one machine", 1},
		"gpu overflow":        {"services:\n  a: {image: x, scale: 2, gpus: [{count: 4611686018427387904}]}\n", "at most 64 GPUs", 2},
		"scale with GPUs":     {"services:\n  a: {image: x, scale: 2, gpus: [{count: 1}]}\n", "has one container", 2},
		"replicas with GPUs":  {"services:\n  b: {image: x}\n  a: {image: x, deploy: {replicas: 3, resources: {reservations: {devices: [{count: 1, capabilities: [gpu]}]}}}}\n", "has one container", 3},
		"scale with all GPUs": {"services:\n  a: {image: x, scale: 2, gpus: all}\n", "has one container", 2},
		"all containers":      {"services:\n  a: {image: x, scale: 40}\n  b: {image: x, scale: 40}\n", "at most 64 containers", 3},
		"bomb":                {bomb + "services: {a: {image: x}}\n", "", 1},
		"gpu by id":           {"services:\n  a: {image: x, deploy: {resources: {reservations: {devices: [{device_ids: ['0'], capabilities: [gpu]}]}}}}\n", "device_ids", 2},
		"scale":               {"services:\n  a: {image: x, scale: 1000}\n", "at most 64 containers", 2},
	} {
		file, faults := composefile.Parse(test.text, nil)
		if file != nil || len(faults) == 0 {
			t.Errorf("%s is accepted", name)
			continue
		}
		if !strings.Contains(faults[0].Error(), test.why) || faults[0].Line != test.line {
			t.Errorf("%s: %v, want %q at line %d", name, faults[0], test.why, test.line)
		}
	}
}

// TestExpansion limits what variables make of a file. A file that is refused says where.
func TestExpansion(t *testing.T) {
	const kib = 1 << 10
	env := map[string]string{"A": strings.Repeat("x", 128*kib), "B": strings.Repeat("y", 4*kib), "N": "1"}
	file := func(line string) string {
		return "services:\n  first: {image: probe, scale: $N}\n  web:\n    image: probe\n    " + line + "\n  zz: {image: probe, scale: $N}\n"
	}
	for name, test := range map[string]struct {
		text    string
		refused bool
	}{
		"a long value once":   {file("command: [echo, $A]"), false},
		"a value often":       {file("command: [echo, '" + strings.Repeat("$B", 500) + "']"), false},
		"a long value often":  {file("command: [echo, '" + strings.Repeat("$A", 64*kib) + "']"), true},
		"in many texts":       {file("command: [" + strings.Repeat("$A, ", 1000) + "x]"), true},
		"as a condition":      {file("command: [echo, '" + strings.Repeat("${A:+x}", 1000) + "']"), true},
		"as an error":         {file("command: [echo, '${C:?" + strings.Repeat("$A", 1000) + "}']"), true},
		"in a key's number":   {file("scale: '" + strings.Repeat("$A", 1000) + "'"), true},
		"through aliases":     {"x-a: &a [" + strings.Repeat("z", 64*kib) + "]\n" + file("x-b: ["+strings.Repeat("*a, ", 100)+"*a]"), true},
		"a default, not used": {file("command: [echo, '${N:-$A}']"), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, faults := composefile.Parse(test.text, env)
			if !test.refused {
				if len(faults) > 0 {
					t.Errorf("it is refused: %v", faults)
				}
				return
			}
			if got != nil || len(faults) != 1 || len(faults[0].Why) > 300 {
				t.Fatalf("it is accepted, or refused at length: %.300v", faults)
			}
			if !strings.Contains(faults[0].Why, "4194304 bytes") {
				t.Errorf("it is refused by %v", faults[0])
			}
			if strings.HasPrefix(test.text, "services") && faults[0].Line != 3 {
				t.Errorf("the fault is at line %d: %v", faults[0].Line, faults[0])
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	for _, r := range refusals {
		f.Add("services:\n  web:\n    image: probe\n    " + r.line + "\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, faults := composefile.Parse(text, nil)
		if (file == nil) == (len(faults) == 0) {
			t.Errorf("a file and faults, or neither: %v", faults)
		}
		if file == nil {
			return
		}
		frame := &composefile.Frame{Network: "net", Images: map[string]composefile.Image{}, Devices: make([]string, len(file.Volumes))}
		for _, ref := range file.Images() {
			frame.Images[ref] = composefile.Image{ID: "sha256:0"}
		}
		emitted, err := file.Emit(frame)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{`"privileged"`, `"cap_add"`, `"devices":["`, `"pid"`, `"env_file"`, `"type":"bind"`, `"network_mode":"host"`} {
			if strings.Contains(string(emitted), word) {
				t.Errorf("%s is emitted: %s", word, emitted)
			}
		}
	})
}
