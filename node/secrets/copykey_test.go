package secrets_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"berth/compute"
	"berth/node/secrets"
)

// TestCopyKey seals copies with keys of two purposes and of two masters: each opens only its
// own, for the same context, and names blobs by names of its own.
func TestCopyKey(t *testing.T) {
	var keys []*secrets.CopyKey
	for _, purpose := range []string{"one", "one", "two"} {
		m, err := secrets.Create(filepath.Join(t.TempDir(), "master.key"), compute.UUID{1})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // The same again.
			k, err := m.CopyKey(purpose)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, k)
		}
	}
	data, context, hash := []byte("what nobody may read"), []byte("blob"), compute.Hash{7}
	sealed, err := keys[0].Seal(data, context)
	if err != nil || bytes.Contains(sealed, data) || len(sealed) != len(data)+24+16 {
		t.Fatalf("%q, %v", sealed, err)
	}
	if again, err := keys[0].Seal(data, context); err != nil || bytes.Equal(again, sealed) {
		t.Errorf("the same twice: %v", err)
	}
	for i, k := range keys {
		got, err := k.Open(sealed, context)
		if own := i < 2; own != (err == nil && bytes.Equal(got, data)) || own != (k.Name(hash) == keys[0].Name(hash)) {
			t.Errorf("key %d: %q, %v", i, got, err)
		}
	}
	if _, err := keys[0].Open(sealed, []byte("blob 2")); err == nil {
		t.Error("it opens for another context")
	}
	for at := range sealed {
		bad := bytes.Clone(sealed)
		bad[at] ^= 1
		if _, err := keys[0].Open(bad, context); err == nil {
			t.Errorf("byte %d was changed", at)
		}
	}
	if keys[0].Name(hash) == hash || keys[0].Name(hash) == keys[0].Name(compute.Hash{8}) {
		t.Error("names tell nothing apart")
	}
}
