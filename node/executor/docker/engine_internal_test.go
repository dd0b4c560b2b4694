package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"berth/compute"
	"berth/node/executor/supervise"
)

// TestWeakness judges the isolation of engines by their facts.
func TestWeakness(t *testing.T) {
	seccomp := []string{"name=apparmor", "name=seccomp,profile=builtin"}
	for _, test := range []struct {
		runc     string
		security []string
		want     string
	}{
		{"1.2.7", seccomp, "known escapes"},
		{"1.2.8", seccomp, ""},
		{"1.3.2", seccomp, "known escapes"},
		{"1.3.3", seccomp, ""},
		{"1.1.15", seccomp, "known escapes"},
		{"1.4.0", seccomp, ""},
		{"2.0.0", seccomp, ""},
		{"1.3.3", []string{"name=apparmor"}, "no seccomp"},
		{"", seccomp, "not known"},
		{"1.3", seccomp, "not known"},
	} {
		if got := weakness(test.runc, test.security); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("runc %q with %v: %q, want %q", test.runc, test.security, got, test.want)
		}
	}
}

// TestContainersGetTheirGPUs sends the request that makes a container to an engine. It asks for
// the GPUs of the attempt, by UUID, and for no others.
func TestContainersGetTheirGPUs(t *testing.T) {
	var asked []map[string]any
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", client.MaxAPIVersion)
		if !strings.HasSuffix(r.URL.Path, "/containers/create") {
			return
		}
		var body struct {
			HostConfig struct{ DeviceRequests []map[string]any }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		asked = body.HostConfig.DeviceRequests
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"Id":"1"}`)
	}))
	defer engine.Close()
	api, err := client.New(client.WithHost("tcp://" + engine.Listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	const first, second = "GPU-0f8a3c5e-6b1d-4c2e-9a7f-1d2e3f4a5b6c", "GPU-9c1b7d2a-3e4f-4a5b-8c6d-7e8f9a0b1c2d"
	for _, gpus := range [][]string{nil, {first}, {first, second}, {second, first}, {first, "MIG-5d3c1b7a-2e4f-4a6b-8c9d-0e1f2a3b4c5d"}} {
		spec := &supervise.Spec{Container: &supervise.Container{Image: &supervise.ContainerImage{ID: "sha256:0"}, GPUs: gpus}}
		if _, err := api.ContainerCreate(t.Context(), request(spec, "/berth/1")); err != nil {
			t.Fatal(err)
		}
		var want []map[string]any
		if len(gpus) > 0 {
			ids := make([]any, len(gpus))
			for i := range gpus {
				ids[i] = gpus[i]
			}
			want = []map[string]any{{
				"Driver": "nvidia", "Count": 0.0, "DeviceIDs": ids, "Capabilities": []any{[]any{"gpu"}}, "Options": nil,
			}}
		}
		if !reflect.DeepEqual(asked, want) {
			t.Errorf("for %v the engine is asked for %v", gpus, asked)
		}
	}
}

// TestServicesShareTheGPUsOfAnAttempt writes the file for Docker Compose of two services that
// reserve GPUs. Each gets its own of the attempt's, by UUID, and all together no others.
func TestServicesShareTheGPUsOfAnAttempt(t *testing.T) {
	t.Chdir(t.TempDir())
	const reserve = "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: %d, capabilities: [gpu]}]}}}"
	gang := []string{"GPU-a", "GPU-b", "GPU-c"}
	spec := &supervise.Spec{MemoryMiB: 64, Pids: 10, Container: &supervise.Container{
		Name: Name("x.1"), Slice: Slice("x.1"), Network: NoNetwork, GPUs: gang,
		Compose: &supervise.ContainerCompose{
			Text: "services:\n  api: {image: probe}\n" +
				"  train: {image: probe, " + fmt.Sprintf(reserve, 2) + "}\n  watch: {image: probe, " + fmt.Sprintf(reserve, 1) + "}\n",
			Images: map[string]supervise.ContainerImage{"docker.io/library/probe:latest": {ID: "sha256:0"}},
		},
	}}
	if _, err := writeCompose(spec, nil); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(ComposeFile)
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		Services map[string]struct {
			Deploy struct {
				Resources struct {
					Reservations struct{ Devices []map[string]any }
				}
			}
		}
	}
	if err := json.Unmarshal(data, &made); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]any{"api": nil, "train": {"GPU-a", "GPU-b"}, "watch": {"GPU-c"}} {
		devices := made.Services[name].Deploy.Resources.Reservations.Devices
		if want == nil {
			if len(devices) > 0 {
				t.Errorf("%s has %v", name, devices)
			}
			continue
		}
		asked := map[string]any{"driver": "nvidia", "device_ids": want, "capabilities": []any{"gpu"}}
		if len(devices) != 1 || !reflect.DeepEqual(devices[0], asked) {
			t.Errorf("%s has %v, want %v", name, devices, asked)
		}
	}
}

// TestProbeWithoutEngine checks that a machine without an engine learns why, and that it
// costs little: nodes look for one every other second.
func TestProbeWithoutEngine(t *testing.T) {
	host := "unix://" + t.TempDir() + "/docker.sock"
	var err error
	allocations := testing.AllocsPerRun(10, func() { _, err = Probe(t.Context(), host) })
	if compute.CodeOf(err) != compute.CodeUnavailable || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no engine: %v", err)
	}
	if allocations > 30 { // A client of an engine takes hundreds.
		t.Errorf("it takes %.0f allocations", allocations)
	}
}
