package wire_test

import (
	"testing"

	"berth/api/wire"
)

// BenchmarkDecodeStart decodes a small start, which has most of its fields absent.
func BenchmarkDecodeStart(b *testing.B) {
	body := []byte(`{"code":"pass","execution_type":"cpu","execution_timeout_seconds":60}`)
	b.ReportAllocs()
	for b.Loop() {
		var in wire.PythonStart
		var f wire.Faults
		if wire.Decode(body, &in, &f); in.Code != "pass" {
			b.Fatal(f)
		}
	}
}
