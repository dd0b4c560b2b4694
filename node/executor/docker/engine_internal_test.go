package docker

import (
	"fmt"
	"strings"
	"testing"

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

// TestContainersGetTheirGPUs asks the engine for the GPUs of an attempt, by UUID, and for none else.
func TestContainersGetTheirGPUs(t *testing.T) {
	for _, gpus := range [][]string{nil, {"GPU-1"}, {"GPU-1", "MIG-2"}} {
		made := request(&supervise.Spec{Container: &supervise.Container{Image: &supervise.ContainerImage{}, GPUs: gpus}}, "/berth/1")
		asked := made.HostConfig.DeviceRequests
		if len(gpus) == 0 {
			if asked != nil {
				t.Errorf("devices without GPUs: %+v", asked)
			}
			continue
		}
		if len(asked) != 1 || fmt.Sprint(asked[0].DeviceIDs) != fmt.Sprint(gpus) || asked[0].Count != 0 || fmt.Sprint(asked[0].Capabilities) != "[[gpu]]" {
			t.Errorf("for %v the engine is asked for %+v", gpus, asked)
		}
	}
}
