package weights

import "strings"

const (
	plainBits = 16 // Bits of a parameter of bfloat16.
	plainMost = 32 // Most bits of a parameter before any quantization.
)

// Precision is how an engine keeps the weights of a model on GPUs, as arguments of vLLM and
// SGLang name it.
type Precision struct {
	Quantization string // A method; "" for none by the engine.
	DType        string // Type of parameters that are not quantized; "" for that of the files.
}

// plain returns the bits of a parameter that the files have with so many. Quantized
// ones keep theirs.
func (p Precision) plain(stored float64) float64 {
	if stored < plainBits {
		return stored
	}
	switch strings.ToLower(p.DType) {
	case "float32", "float":
		return plainMost
	case "float16", "half", "bfloat16", "auto": // Which of them the files say, but never more bits.
		return plainBits
	}
	return stored
}

// quantization is how an engine stores the parameters of a model on GPUs.
type quantization struct {
	bits   float64 // Bits of each parameter; 0 if the name of the method leaves them open.
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

// loaded returns the bytes that the weights of a listing take on GPUs. It reports false
// if that is not known.
func loaded(name string, listed int64, p Precision) (int64, bool) {
	if p.Quantization == "" {
		stored, known := storedBits(name, listed)
		if !known {
			return listed, true // They may have 16 bits or 32.
		}
		return int64(float64(listed) * p.plain(stored) / stored), true
	}
	q, known := quantizationOf(p.Quantization)
	if !known {
		return 0, false
	}
	if !q.atLoad {
		return listed, true
	}
	stored, _ := storedBits(name, listed)
	if q.bits >= stored {
		return listed, true
	}
	return int64(float64(listed) * q.bits / stored), true
}

// storedBits returns the bits of a parameter in files of a size: as the name says, or
// as the number of parameters in it says. It reports false if neither does; they are then
// those of bfloat16.
func storedBits(name string, listed int64) (bits float64, known bool) {
	if bits := bitsOf(strings.ToLower(name)); bits != plainBits {
		return bits, true
	}
	count, known := countOf(strings.ToLower(name))
	if !known {
		return plainBits, false
	}
	// Names count roughly, and some leave out the experts of a mixture.
	switch bits := float64(listed) * 8 / count; {
	case bits < 6:
		return 4.5, true
	case bits < 11:
		return 8, true
	case bits > 25 && bits < 40:
		return plainMost, true
	case bits > 40:
		return plainBits, false // The name counts something else.
	}
	return plainBits, true
}
