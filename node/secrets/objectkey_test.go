package secrets_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"berth/compute"
	"berth/node/secrets"
)

// TestObjectKeys holds that one key makes the same ciphertext of the same bytes, that
// another key does not, and that neither context can be left out.
func TestObjectKeys(t *testing.T) {
	m, err := secrets.Create(filepath.Join(t.TempDir(), "keys", "master.key"), compute.UUID{1})
	if err != nil {
		t.Fatal(err)
	}
	open := func(of string) *secrets.ObjectKey {
		t.Helper()
		sealed, err := m.NewObjectKey([]byte(of))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.OpenObjectKey(sealed, []byte("another")); err == nil {
			t.Error("a key was opened for another organization")
		}
		key, err := m.OpenObjectKey(sealed, []byte(of))
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	a, b := open("a"), open("b")
	data := bytes.Repeat([]byte("content "), 1000)
	one, err := a.Seal(data, []byte("chunk"))
	if err != nil {
		t.Fatal(err)
	}
	again, _ := a.Seal(data, []byte("chunk"))
	other, _ := b.Seal(data, []byte("chunk"))
	if !bytes.Equal(one, again) || bytes.Equal(one, other) || bytes.Contains(one, []byte("content")) {
		t.Error("the ciphertexts are not as they must be")
	}
	if got, err := a.Open(one, []byte("chunk")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("opened: %d bytes, %v", len(got), err)
	}
	if _, err := a.Open(one, []byte("manifest")); err == nil {
		t.Error("it was opened for another purpose")
	}
	if _, err := b.Open(one, []byte("chunk")); err == nil {
		t.Error("it was opened with another key")
	}
	one[len(one)/2] ^= 1
	if _, err := a.Open(one, []byte("chunk")); err == nil {
		t.Error("a changed ciphertext was opened")
	}
}
