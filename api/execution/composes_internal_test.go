package execution

import (
	"fmt"
	"strings"
	"testing"

	"berth/api/wire"
	"berth/composefile"
)

// TestGangOfServices asks for the GPUs of all services together, as one gang.
func TestGangOfServices(t *testing.T) {
	service := func(name, count string) string {
		return fmt.Sprintf("  %s: {image: x, deploy: {resources: {reservations: {devices: [{driver: nvidia, count: %s, capabilities: [gpu]}]}}}}\n", name, count)
	}
	for _, test := range []struct {
		name, services, asked, want, fault string
	}{
		{"no GPUs", "  a: {image: x}\n", "", "cpu", ""},
		{"one, of any type", service("a", "1"), "", "gpu.any", ""},
		{"two services, one gang", service("a", "1") + service("b", "1"), "gpu.a100", "gpu.a100.2x", ""},
		{"rounded up to a size", service("a", "1") + service("b", "2"), "gpu.a100", "gpu.a100.4x", ""},
		{"the size that was asked for", service("a", "1"), "gpu.a100.4x", "gpu.a100.4x", ""},
		{"all of what was asked for", service("a", "all"), "gpu.a100.2x", "gpu.a100.2x", ""},
		{"more than was asked for", service("a", "4"), "gpu.a100.2x", "", "reserve 4 GPUs"},
		{"more than an execution gets", service("a", "64"), "gpu.a100", "", "reserve 64 GPUs"},
		{"no type of GPU", service("a", "1"), "cpu", "", "names a type of GPU"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file, faults := composefile.Parse("services:\n"+test.services, nil)
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			in := new(wire.ComposeStart)
			if test.asked != "" {
				in.ExecutionType = &test.asked
			}
			got, err := gangProfile(in, file)
			if got != test.want || (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) {
				t.Errorf("%q, %v, want %q, %q", got, err, test.want, test.fault)
			}
		})
	}
}
