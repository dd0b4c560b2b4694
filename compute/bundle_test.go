package compute_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"reflect"
	"strings"
	"testing"

	"berth/compute"
)

func TestBundleTravels(t *testing.T) {
	tests := []compute.Bundle{
		{},
		{Code: "print('<&>')\n", FileName: "main.py"},
		{
			Code: "é\u2028\x00", ImportFiles: map[string]string{"b/c.py": "x", "a.py": "", "z": "1"},
			PriorImports: []string{"import os"}, Env: map[string]string{"B": "2", "A": "1"},
		},
	}
	for _, want := range tests {
		data, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if again, err := want.Encode(); err != nil || !bytes.Equal(again, data) {
				t.Fatal("the same bundle gives other bytes")
			}
		}
		got, err := compute.DecodeBundle(data)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
	}
}

func TestBundleSizes(t *testing.T) {
	// Escaped for HTML, these 3 MiB would be 18 MiB, beyond the limit.
	b := compute.Bundle{Code: strings.Repeat("<&>", 1<<20)}
	data, err := b.Encode()
	if err != nil {
		t.Fatalf("3 MiB of code: %v", err)
	}
	if got, err := compute.DecodeBundle(data); err != nil || got.Code != b.Code {
		t.Errorf("3 MiB of code did not come back: %v", err)
	}
	for _, n := range []int{1, 200, 240, 300, 10_000} {
		small := compute.Bundle{Code: strings.Repeat("x", n)}
		data, err := small.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := compute.DecodeBundle(data); err != nil || got.Code != small.Code || len(data) > min(n, 256)+64 {
			t.Errorf("%d bytes of code take %d, and came back as %d, %v", n, len(data), len(got.Code), err)
		}
	}
	b.Code = strings.Repeat("x", compute.MaxDecodedBundle)
	if _, err := b.Encode(); compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("a bundle that could not be decoded again: %v", err)
	}
}

// zipped returns n bytes of c, gzipped in one member.
func zipped(t *testing.T, text string, n int) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	for n > 0 {
		k, err := io.WriteString(w, text[:min(len(text), n)])
		if err != nil {
			t.Fatal(err)
		}
		n -= k
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestDecodeBundleRefuses(t *testing.T) {
	spaces := strings.Repeat(" ", 1<<16)
	good := zipped(t, `{"code":"x"}`, 12)
	if _, err := compute.DecodeBundle(good); err != nil {
		t.Fatal(err)
	}
	full := zipped(t, spaces, compute.MaxDecodedBundle)
	tests := map[string][]byte{
		"nothing":             nil,
		"no gzip":             []byte(`{"code":"x"}`),
		"cut off":             good[:len(good)-1],
		"a flipped bit":       flip(good, len(good)-6),
		"something behind it": append(bytes.Clone(good), "more"...),
		"no JSON":             zipped(t, "code", 4),
		"two values":          zipped(t, `{}{}`, 4),
		"another type":        zipped(t, `{"code":1}`, 10),
		"a bomb":              append(bytes.Clone(full), good...),
	}
	for name, data := range tests {
		if b, err := compute.DecodeBundle(data); err == nil {
			t.Errorf("%s: %.60q", name, b.Code)
		}
	}
	if len(full) > 1<<20 {
		t.Errorf("the bomb has %d bytes and is none", len(full))
	}
}

// flip returns data with one bit of byte i flipped.
func flip(data []byte, i int) []byte {
	data = bytes.Clone(data)
	data[i] ^= 1
	return data
}

func FuzzDecodeBundle(f *testing.F) {
	good, err := (&compute.Bundle{Code: "print(1)", ImportFiles: map[string]string{"a.py": "x"}}).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Add(good[:10])
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := compute.DecodeBundle(data)
		if err != nil {
			return
		}
		again, err := b.Encode()
		if err != nil {
			return // The encoding is longer than the input.
		}
		if c, err := compute.DecodeBundle(again); err != nil || !reflect.DeepEqual(b, c) {
			t.Errorf("%+v came back as %+v, %v", b, c, err)
		}
	})
}

// BenchmarkBundle measures the cost of the codec for each submit and each start.
func BenchmarkBundle(b *testing.B) {
	for name, code := range map[string]string{
		"small": "print(1)\n",
		"10KiB": strings.Repeat("import torch\nx = torch.zeros(10, device='cuda')\nprint(x.sum())\n", 160),
	} {
		bundle := compute.Bundle{Code: code, FileName: "main.py"}
		data, err := bundle.Encode()
		if err != nil {
			b.Fatal(err)
		}
		b.Run("encode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bundle.Encode(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := compute.DecodeBundle(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
