package weights

import "strings"

const (
	plainBits = 16 // Of a parameter of bfloat16.
	plainMost = 32 // Of a parameter before any quantization.
)

// quantization is how an engine stores the parameters of a model on GPUs.
type quantization struct {
	bits   float64 // Of each parameter; 0 if the name of the method does not say.
	atLoad bool    // The engine does it; else the files have it.
}

// quantizationOf returns the quantization of a method, as --quantization of vLLM and
// SGLang names it. It reports false for a method that is not known.
func quantizationOf(method string) (quantization, bool) {
	for _, q := range []struct {
		methods string
		quantization
	}{
		{
			"fp8 fp8_per_tensor fp8_per_block fp8_per_channel ptpc_fp8 w8a8_fp8 mxfp8 int8 w8a8_int8 tpu_int8 experts_int8",
			quantization{8, true},
		},
		{"bitsandbytes mxfp4 int4", quantization{4.5, true}},
		{
			"awq awq_marlin gptq gptq_marlin gptq_marlin_24 marlin moe_wna16 modelopt_fp4 nvfp4 petit_nvfp4 w4afp8",
			quantization{4.5, false},
		},
		{"fbgemm_fp8 modelopt modelopt_fp8 blockwise_int8", quantization{8, false}},
		{"compressed-tensors gguf auto-round quark", quantization{0, false}},
	} {
		for name := range strings.FieldsSeq(q.methods) {
			if name == strings.ToLower(method) {
				return q.quantization, true
			}
		}
	}
	return quantization{}, false
}

// loaded returns the bytes that the weights of a listing take on GPUs, "" for no
// quantization by the engine. It reports false if that is not known.
func loaded(name string, listed int64, method string) (int64, bool) {
	if method == "" {
		return listed, true
	}
	q, known := quantizationOf(method)
	if !known {
		return 0, false
	}
	if !q.atLoad {
		return listed, true
	}
	stored := storedBits(name, listed)
	if q.bits >= stored {
		return listed, true
	}
	return int64(float64(listed) * q.bits / stored), true
}

// storedBits returns the bits of a parameter in files of a size: as the name says, or
// as the number of parameters in it says, else those of bfloat16.
func storedBits(name string, listed int64) float64 {
	if bits := bitsOf(strings.ToLower(name)); bits != plainBits {
		return bits
	}
	count, known := countOf(strings.ToLower(name))
	if !known {
		return plainBits
	}
	// Names count roughly, and some leave out the experts of a mixture.
	switch bits := float64(listed) * 8 / count; {
	case bits < 6:
		return 4.5
	case bits < 11:
		return 8
	case bits > 25 && bits < 40:
		return plainMost
	}
	return plainBits
}
