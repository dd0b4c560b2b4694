package objects

import (
	"bytes"
	"testing"
	"testing/synctest"

	"berth/compute"
)

// FuzzManifest holds that no bytes make decoding panic or take much memory, and that
// what decodes encodes to the same.
func FuzzManifest(f *testing.F) {
	whole := manifest{chunks: []chunk{{compute.Hash{1}, 5}, {compute.Hash{2}, compute.MaxChunk}}, sealed: []byte("sealed")}
	f.Add(whole.encode())
	f.Add((&manifest{}).encode())
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeManifest(data)
		if err != nil {
			return
		}
		again, err := decodeManifest(m.encode())
		if err != nil || len(again.chunks) != len(m.chunks) || !bytes.Equal(again.sealed, m.sealed) {
			t.Errorf("%x came back as %+v, %v", data, again, err)
		}
	})
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
