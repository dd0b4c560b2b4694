package weights_test

import (
	"os"
	"path/filepath"
	"testing"

	"berth/node/inference/weights"
)

func TestSizeFromName(t *testing.T) {
	for _, test := range []struct {
		name   string
		method string
		want   int64 // Size in units of 10^6 bytes; 0: unknown.
	}{
		{"meta-llama/Llama-3.1-70B-Instruct", "", 140_000},
		{"meta-llama/Meta-Llama-3-8B", "", 16_000},
		{"Qwen/Qwen2.5-0.5B-Instruct", "", 1000},
		{"Qwen/Qwen3-235B-A22B-FP8", "", 235_000},
		{"mistralai/Mixtral-8x7B-v0.1", "", 112_000},
		{"TheBloke/Llama-2-13B-AWQ", "", 7312},
		{"bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", "", 1687},
		{"bartowski/Llama-3.2-3B-Instruct-GGUF:Q8_0", "", 3000},
		{"HuggingFaceTB/SmolLM2-135M@main", "", 270},
		{"google/gemma-3-27b-it-qat-q4_0-gguf", "", 15_187},
		{"owner/model-7b-13b", "", 26_000},
		{"openai-community/gpt2", "", 0},
		{"owner/v2b4m", "", 0},
		{"tiny/echo", "", 0},
		{"meta-llama/Llama-3.1-70B-Instruct", "fp8", 70_000},
		{"meta-llama/Llama-3.1-70B-Instruct", "bitsandbytes", 39_375},
		{"meta-llama/Llama-3.1-70B-Instruct", "AWQ", 39_375},
		{"meta-llama/Llama-3.1-70B-Instruct", "compressed-tensors", 0},
		{"meta-llama/Llama-3.1-70B-Instruct", "another", 0},
		{"owner/Llama-3.1-70B-w4a16", "compressed-tensors", 39_375},
		{"TheBloke/Llama-2-13B-AWQ", "awq", 7312},
		{"TheBloke/Llama-2-13B-AWQ", "fp8", 7312},
		{"Qwen/Qwen3-235B-A22B-FP8", "fp8", 235_000},
		{"tiny/echo", "fp8", 0},
	} {
		got, known := weights.SizeFromName(test.name, weights.Precision{Quantization: test.method})
		if known != (test.want > 0) || got/1e6 != test.want {
			t.Errorf("%s, %q: %d, %t, want %d", test.name, test.method, got/1e6, known, test.want)
		}
	}
}

// TestSize reads the size from a listing, of the files that an engine loads, and
// otherwise from the name.
func TestSize(t *testing.T) {
	h := newHub(t, map[string]string{
		"model-1.safetensors": "12345", "model-2.safetensors": "12", "consolidated.safetensors": "1234567",
		"config.json": "{}", "m.Q8_0.gguf": "123456789", "m.Q4_K_M.gguf": "1234",
	})
	s := newStore(t, h)
	for _, test := range []struct {
		name, format string
		want         int64
	}{
		{"a/b", "safetensors", 7},
		{"a/b", "gguf", 4},
		{"a/b:q8_0", "gguf", 9},
		{"a/other-1B", "gguf", 2_000_000_000},
		{"a/other", "gguf", 0},
	} {
		got, known := s.Size(t.Context(), weights.Want{Name: test.name}, []string{test.format}, weights.Precision{})
		if got != test.want || known != (test.want > 0) {
			t.Errorf("%s, %s: %d, %t", test.name, test.format, got, known)
		}
	}
	h.down.Store(true)
	if got, known := s.Size(t.Context(), weights.Want{Name: "a/b"}, []string{"gguf"}, weights.Precision{}); known {
		t.Errorf("of a hub that does not answer: %d", got)
	}
}

// TestSizeQuantized reads the size of weights once an engine has quantized them, if their
// files have more bits than that.
func TestSizeQuantized(t *testing.T) {
	models := t.TempDir()
	s := newStore(t, newHub(t, nil), func(c *weights.Config) { c.Models = models })
	for _, test := range []struct {
		name, method string
		listed, want int64 // 0: unknown.
	}{
		{"a/model", "", 16_000, 16_000},
		{"a/model", "fp8", 16_000, 8000},
		{"a/model", "fp8_per_block", 16_000, 8000},
		{"a/model", "int8", 16_000, 8000},
		{"a/model", "bitsandbytes", 16_000, 4500},
		{"a/model", "awq", 16_000, 16_000},
		{"a/model", "gptq_marlin", 16_000, 16_000},
		{"a/model", "compressed-tensors", 16_000, 16_000},
		{"a/model", "another", 16_000, 0},
		{"a/model-fp8", "fp8", 16_000, 16_000},
		{"a/model-awq", "fp8", 16_000, 16_000},
		{"a/model-fp8", "bitsandbytes", 16_000, 9000},
		{"a/model-0.008m", "fp8", 16_000, 8000},
		{"a/model-0.016m", "fp8", 16_000, 16_000},
		{"a/model-0.030m", "fp8", 16_000, 16_000},
		{"a/model-0.004m", "fp8", 16_000, 4000},
		{"a/model-0.001m", "fp8", 16_000, 8000}, // The name counts one of many experts.
	} {
		dir := filepath.Join(models, filepath.FromSlash(test.name))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), make([]byte, test.listed), 0o644); err != nil {
			t.Fatal(err)
		}
		got, known := s.Size(t.Context(), weights.Want{Name: test.name}, []string{"safetensors"}, weights.Precision{Quantization: test.method})
		if got != test.want || known != (test.want > 0) {
			t.Errorf("%s of %d bytes with %q: %d, %t, want %d", test.name, test.listed, test.method, got, known, test.want)
		}
	}
}

// TestSizeByDType reads the size of weights that the engine converts to a type.
func TestSizeByDType(t *testing.T) {
	models := t.TempDir()
	s := newStore(t, newHub(t, nil), func(c *weights.Config) { c.Models = models })
	for _, test := range []struct {
		name, dtype, method string
		listed, want        int64 // 0: none, from the name.
	}{
		{"a/model-0.008m", "", "", 16_000, 16_000},
		{"a/model-0.008m", "float32", "", 16_000, 32_000},
		{"a/model-0.008m", "float", "", 16_000, 32_000},
		{"a/model-0.008m", "bfloat16", "", 16_000, 16_000},
		{"a/model-0.008m", "auto", "", 16_000, 16_000},
		{"a/model-0.008m", "other", "", 16_000, 16_000},
		{"a/model-0.008m", "float32", "fp8", 16_000, 8000}, // The method counts.
		{"a/model-0.008m", "float32", "", 32_000, 32_000},
		{"a/model-0.008m", "", "", 32_000, 32_000},
		{"a/model-0.008m", "half", "", 32_000, 16_000},
		{"a/model-0.008m", "auto", "", 32_000, 16_000},
		{"a/model-0.008m", "float32", "", 8000, 8000}, // Quantized before.
		{"a/model-fp8", "float32", "", 16_000, 16_000},
		{"a/model-fp32", "float16", "", 32_000, 16_000},
		{"a/model", "float32", "", 16_000, 16_000}, // It may have 32 bits already.
		{"a/named-1m", "float32", "", 0, 4_000_000},
		{"a/named-1m", "auto", "", 0, 2_000_000},
		{"a/named-1m-fp32", "auto", "", 0, 2_000_000},
		{"a/named-1m-fp32", "", "", 0, 4_000_000},
		{"a/named-1m-awq", "float32", "", 0, 562_500},
	} {
		dir := filepath.Join(models, filepath.FromSlash(test.name))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if test.listed > 0 {
			if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), make([]byte, test.listed), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		p := weights.Precision{DType: test.dtype, Quantization: test.method}
		got, known := s.Size(t.Context(), weights.Want{Name: test.name}, []string{"safetensors"}, p)
		if got != test.want || !known {
			t.Errorf("%s of %d bytes as %+v: %d, %t, want %d", test.name, test.listed, p, got, known, test.want)
		}
	}
}
