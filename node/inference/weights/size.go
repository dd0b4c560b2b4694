package weights

import (
	"cmp"
	"context"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Size returns the bytes that the weights of a model in one of the formats take on GPUs:
// from the listing of the first source that has it, else estimated from its name. It
// reports false if the size is not known.
func (s *Store) Size(ctx context.Context, w Want, formats []string, p Precision) (int64, bool) {
	if size, ok := s.listed(ctx, w, formats); ok && size > 0 {
		return loaded(w.Name, size, p)
	}
	return SizeFromName(w.Name, p)
}

// listed returns the bytes of the files that hold the weights of a model.
func (s *Store) listed(ctx context.Context, w Want, formats []string) (int64, bool) {
	if s.cfg.Stored != nil {
		if size, ok := listedSize(ctx, s.cfg.Stored, w, formats); ok {
			return size, true
		}
	}
	if _, files := s.localFiles(w); files != nil {
		if size, ok := sizeOf(files, w, formats); ok {
			return size, true
		}
	}
	for _, source := range s.cfg.Sources {
		if size, ok := listedSize(ctx, source, w, formats); ok {
			return size, true
		}
	}
	return 0, false
}

func listedSize(ctx context.Context, source Source, w Want, formats []string) (int64, bool) {
	l, err := source.List(ctx, w)
	if err != nil {
		return 0, false // The node that starts a replica says why.
	}
	return sizeOf(l.Files, w, formats)
}

// sizeOf adds up the files that hold weights. It reports false if a start would not take
// these files.
func sizeOf(files []File, w Want, formats []string) (sum int64, ok bool) {
	format, chosen := choose(files, w, formats)
	again := int64(0)
	for _, f := range chosen {
		switch {
		case !strings.EqualFold(path.Ext(f.Name), "."+format):
		case strings.HasPrefix(f.Name, "consolidated"):
			again += f.Size // Some models have the same weights a second time, in their maker's layout.
		default:
			sum += f.Size
		}
	}
	return cmp.Or(sum, again), len(chosen) > 0
}

// Parameters in the names of models, as in 70B, 0.5b, 8x7B and 135M. A number after a letter
// is another one: A3B are the active parameters of a mixture, and E4B the effective ones.
var parameters = regexp.MustCompile(`(?:^|[-_./])(?:([0-9]{1,3})x)?([0-9]{1,4}(?:\.[0-9]{1,3})?)([bm])(?:$|[-_.:@])`)

// bitsOf returns the bits of a parameter that the name of a quantized model states, and
// those of bfloat16 if it states none.
func bitsOf(name string) float64 {
	for _, b := range []struct {
		names string
		bits  float64
	}{
		{"q2 iq1 iq2", 2.5},
		{"q3 iq3", 3.5},
		{"q4 iq4 4bit int4 w4a16 awq gptq bnb nf4 mxfp4 nvfp4 fp4", 4.5},
		{"q5", 5.5},
		{"q6", 6.5},
		{"q8 8bit int8 w8a8 w8a16 fp8", 8},
		{"f32 fp32", plainMost},
	} {
		for text := range strings.FieldsSeq(b.names) {
			if containsPart(name, text) {
				return b.bits
			}
		}
	}
	return plainBits
}

// containsPart reports whether a part of a name begins with a text.
func containsPart(name, text string) bool {
	return slices.ContainsFunc([]string{"-", "_", ".", ":"}, func(before string) bool {
		return strings.Contains(name, before+text)
	})
}

// SizeFromName estimates the bytes of a model's weights on GPUs from its name: the
// largest number of parameters in it, times the bits of each, of which the engine may
// keep fewer. It reports false for a name without a number, and for a method of
// quantization that does not say its bits.
func SizeFromName(name string, p Precision) (int64, bool) {
	name = strings.ToLower(name)
	count, known := countOf(name)
	if !known {
		return 0, false
	}
	bits := bitsOf(name)
	if p.Quantization == "" {
		bits = p.plain(bits)
	} else {
		q, known := quantizationOf(p.Quantization)
		if !known || q.bits == 0 && bits == plainBits {
			return 0, false
		}
		if q.bits > 0 {
			bits = min(bits, q.bits)
		}
	}
	return int64(count * bits / 8), true
}

// countOf returns the largest number of parameters in a name of lower case.
func countOf(name string) (most float64, known bool) {
	// Neighbours share the character between them, so each match is sought from the end
	// of the last number.
	for rest := name; ; {
		at := parameters.FindStringSubmatchIndex(rest)
		if at == nil {
			return most, most > 0
		}
		count, _ := strconv.ParseFloat(rest[at[4]:at[5]], 64)
		if at[2] >= 0 {
			times, _ := strconv.ParseFloat(rest[at[2]:at[3]], 64)
			count *= times
		}
		unit := 1e9
		if rest[at[6]] == 'm' {
			unit = 1e6
		}
		most = math.Max(most, count*unit)
		rest = rest[at[7]:]
	}
}
