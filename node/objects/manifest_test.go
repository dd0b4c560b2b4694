package objects

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"berth/compute"
)

// FuzzManifest holds that no bytes make decoding panic or take much memory, and that
// what decodes encodes to the same.
func FuzzManifest(f *testing.F) {
	whole := manifest{
		chunks: []chunk{{blob: compute.Hash{1}, size: 5}, {blob: compute.Hash{2}, size: compute.MaxChunk}}, sealed: []byte("sealed"),
	}
	f.Add(whole.encode())
	whole.chunks[1].iv = IV{3}
	f.Add(whole.encode())
	f.Add((&manifest{}).encode())
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeManifest(data)
		if err != nil {
			return
		}
		again, err := decodeManifest(m.encode())
		if err != nil || !slices.Equal(again.chunks, m.chunks) || !bytes.Equal(again.sealed, m.sealed) {
			t.Errorf("%x came back as %+v, %v", data, again, err)
		}
	})
}

// TestManifestVersions holds that manifests are readable for ever, and that one without IVs
// is as older servers read it.
func TestManifestVersions(t *testing.T) {
	plain := &manifest{chunks: []chunk{{blob: compute.Hash{1}, size: 300}, {blob: compute.Hash{2}, size: 5}}, sealed: []byte("sea")}
	zeros := func(n int) string { return strings.Repeat("00", n) }
	ivs := &manifest{chunks: slices.Clone(plain.chunks), sealed: plain.sealed}
	ivs.chunks[0].iv = IV{0xaa, 15: 0xbb}
	for _, test := range []struct {
		name string
		m    *manifest
		text string
	}{
		{"version 1", plain, "0102" + "01" + zeros(31) + "ac02" + "02" + zeros(31) + "05" + "03736561"},
		{"version 2", ivs, "0202" + "01" + zeros(31) + "aa" + zeros(14) + "bb" + "ac02" + "02" + zeros(31) + zeros(16) + "05" + "03736561"},
	} {
		if got := hex.EncodeToString(test.m.encode()); got != test.text {
			t.Errorf("%s is %s", test.name, got)
		}
		data, _ := hex.DecodeString(test.text)
		got, err := decodeManifest(data)
		if err != nil || !slices.Equal(got.chunks, test.m.chunks) || string(got.sealed) != "sea" {
			t.Errorf("%s is read as %+v, %v", test.name, got, err)
		}
	}
}

// TestPlaces holds that an organization cannot have all places, and that one waits until
// a place is given back.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(4, 2)
		a, b := compute.OrgID{UUID: compute.UUID{1}}, compute.OrgID{UUID: compute.UUID{2}}
		var gives []func()
		for _, org := range []compute.OrgID{a, a, b} {
			give, err := p.take(t.Context(), org)
			if err != nil {
				t.Fatal(err)
			}
			gives = append(gives, give)
		}
		taken := make(chan error)
		go func() {
			_, err := p.take(t.Context(), a)
			taken <- err
		}()
		synctest.Wait()
		select {
		case <-taken: //nolint:errcheck // Any answer is one too many.
			t.Fatal("one has more than its share")
		default:
		}
		gives[0]()
		if err := <-taken; err != nil {
			t.Error(err)
		}
	})
}
