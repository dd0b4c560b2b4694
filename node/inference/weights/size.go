package weights

import (
	"context"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Size returns the bytes of the weights of a model in one of the formats: from the
// listing of the first source that has it, else estimated from its name. It reports
// false if neither says.
func (s *Store) Size(ctx context.Context, w Want, formats []string) (int64, bool) {
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
	return SizeFromName(w.Name)
}

func listedSize(ctx context.Context, source Source, w Want, formats []string) (int64, bool) {
	l, err := source.List(ctx, w)
	if err != nil {
		return 0, false // The node that starts a replica says why.
	}
	return sizeOf(l.Files, w, formats)
}

// sizeOf adds up the files that hold weights.
func sizeOf(files []File, w Want, formats []string) (sum int64, ok bool) {
	_, _, part := w.split()
	for _, format := range formats {
		for _, f := range wanted(files, format, part) {
			// Some models have the same weights a second time, in their maker's layout.
			if strings.TrimPrefix(strings.ToLower(path.Ext(f.Name)), ".") == format && !strings.HasPrefix(f.Name, "consolidated") {
				sum += f.Size
			}
		}
		if sum > 0 {
			return sum, true
		}
	}
	return 0, false
}

// Parameters in the names of models, as in 70B, 0.5b, 8x7B and 135M. What follows a
// letter is another number: A3B are the active parameters of a mixture, and E4B
// the effective ones.
var parameters = regexp.MustCompile(`(?:^|[-_./])(?:([0-9]{1,3})x)?([0-9]{1,4}(?:\.[0-9]{1,3})?)([bm])(?:$|[-_.:@])`)

// bits are the bits of a parameter by what is in the names of quantized models.
var bits = []struct {
	name *regexp.Regexp
	bits float64
}{
	{regexp.MustCompile(`[-_.:](q2|iq1|iq2)`), 2.5},
	{regexp.MustCompile(`[-_.:](q3|iq3)`), 3.5},
	{regexp.MustCompile(`[-_.:](q4|iq4|4bit|int4|w4a16|awq|gptq|bnb|nf4|mxfp4|nvfp4|fp4)`), 4.5},
	{regexp.MustCompile(`[-_.:]q5`), 5.5},
	{regexp.MustCompile(`[-_.:]q6`), 6.5},
	{regexp.MustCompile(`[-_.:](q8|8bit|int8|w8a8|w8a16|fp8)`), 8},
	{regexp.MustCompile(`[-_.:](f32|fp32)`), 32},
}

// plainBits are the bits of a parameter of which a name says nothing: of bfloat16.
const plainBits = 16

// SizeFromName estimates the bytes of a model's weights from its name: the largest
// number of parameters in it, times the bits of each. It reports false for a name
// without one.
func SizeFromName(name string) (int64, bool) {
	name = strings.ToLower(name)
	most := 0.0
	// Neighbours share the character between them, so each match is sought from the end
	// of the last number.
	for rest := name; ; {
		at := parameters.FindStringSubmatchIndex(rest)
		if at == nil {
			break
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
	if most == 0 {
		return 0, false
	}
	each := float64(plainBits)
	for _, b := range bits {
		if b.name.MatchString(name) {
			each = b.bits
			break
		}
	}
	return int64(most * each / 8), true
}
