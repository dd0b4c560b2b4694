package deployment

import (
	"testing"

	"berth/api/handler"
	"berth/compute"
)

// TestDefaultEngine chooses the engine of deployments that name none.
func TestDefaultEngine(t *testing.T) {
	list := []handler.Engine{{Name: "llama.cpp"}, {Name: "sglang", GPU: true}, {Name: "vllm", GPU: true}}
	for _, test := range []struct {
		name    string
		offered []string
		noGPU   bool
		want    string
	}{
		{"vLLM before all others", []string{"llama.cpp", "sglang", "vllm"}, false, "vllm"},
		{"no vLLM on any node", []string{"llama.cpp", "sglang"}, false, "llama.cpp"},
		{"no GPU is asked for", []string{"llama.cpp", "sglang", "vllm"}, true, "llama.cpp"},
		{"only engines of GPUs, and none is asked for", []string{"sglang", "vllm"}, true, ""},
		{"none", nil, false, ""},
	} {
		offered := make(map[compute.Offer]bool)
		for _, name := range test.offered {
			offered[compute.InferenceOffer(name)] = true
		}
		got := ""
		if e := defaultEngine(list, offered, test.noGPU); e != nil {
			got = e.Name
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
