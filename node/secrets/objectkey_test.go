package secrets_test

import (
	"bytes"
	"encoding/hex"
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

// mustOpenKey returns the same object key of a fresh master key, twice.
func mustOpenKey(t *testing.T) (a, b *secrets.ObjectKey) {
	t.Helper()
	m, err := secrets.Create(filepath.Join(t.TempDir(), "keys", "master.key"), compute.UUID{1})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := m.NewObjectKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, err = m.OpenObjectKey(sealed, nil); err != nil {
		t.Fatal(err)
	}
	if b, err = m.OpenObjectKey(sealed, nil); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// TestChunks holds that chunks are sealed deterministically, that nothing but what was
// sealed is opened, and that chunks of older versions are.
func TestChunks(t *testing.T) {
	key, same := mustOpenKey(t)
	other, _ := mustOpenKey(t)
	kind := []byte("chunk")
	for _, size := range []int{0, 1, 31, 4096, 1<<20 + 7} {
		data := bytes.Repeat([]byte("0123456789abcdefg"), size/17+1)[:size]
		sealed, iv, err := key.SealChunk(nil, data, kind)
		if err != nil {
			t.Fatal(err)
		}
		again, againIV, _ := same.SealChunk(nil, data, kind)
		foreign, foreignIV, _ := other.SealChunk(nil, data, kind)
		meta, metaIV, _ := key.SealChunk(nil, data, []byte("meta"))
		if !bytes.Equal(sealed, again) || iv != againIV {
			t.Errorf("%d bytes are sealed in two ways", size)
		}
		dst := append(make([]byte, 0, size+64), "head"...)
		added, _, _ := key.SealChunk(dst, data, kind)
		if string(added[:4]) != "head" || !bytes.Equal(added[4:], sealed) || &added[0] != &dst[0] {
			t.Errorf("%d bytes are not sealed into the memory that was given", size)
		}
		if bytes.Equal(sealed, foreign) || bytes.Equal(sealed, meta) || iv == foreignIV || iv == metaIV {
			t.Errorf("%d bytes are sealed alike with another key or for another purpose", size)
		}
		if size > 30 && bytes.Contains(sealed, data[:31]) {
			t.Error("a chunk has plaintext")
		}
		for _, want := range [][16]byte{iv, {}} {
			got, err := same.OpenChunk(bytes.Clone(sealed), kind, want)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes opened are %d, %v", size, len(got), err)
			}
		}
		if _, err := key.OpenChunk(bytes.Clone(sealed), []byte("meta"), [16]byte{}); err == nil {
			t.Error("a chunk was opened for another purpose")
		}
		if _, err := other.OpenChunk(bytes.Clone(sealed), kind, [16]byte{}); err == nil {
			t.Error("a chunk was opened with another key")
		}
		if _, err := key.OpenChunk(bytes.Clone(meta), []byte("meta"), iv); err == nil {
			t.Error("other data was opened in its place")
		}
		for at := 0; at < len(sealed); at += max(1, len(sealed)/50) {
			for _, want := range [][16]byte{iv, {}} {
				damaged := bytes.Clone(sealed)
				damaged[at] ^= 1
				if _, err := key.OpenChunk(damaged, kind, want); err == nil {
					t.Errorf("%d bytes were opened with a changed bit at %d", size, at)
				}
				if _, err := key.OpenChunk(bytes.Clone(sealed[:at]), kind, want); err == nil {
					t.Errorf("%d bytes were opened of %d of %d", size, at, len(sealed))
				}
			}
		}
		old, _ := key.Seal(data, kind)
		if got, err := same.OpenChunk(bytes.Clone(old), kind, [16]byte{}); err != nil || !bytes.Equal(got, data) {
			t.Errorf("a chunk of an older version: %d bytes, %v", len(got), err)
		}
		if _, err := key.OpenChunk(bytes.Clone(old), kind, iv); err == nil {
			t.Error("a chunk of an older version was opened in place of a newer one")
		}
	}
	if _, _, err := key.SealChunk(nil, make([]byte, 16<<20+1), kind); compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("too much was sealed: %v", err)
	}
}

// TestStoredObjectsStayReadable opens what earlier versions stored, with the key that they
// stored it with.
func TestStoredObjectsStayReadable(t *testing.T) {
	const (
		stored = `{"primaryKeyId":2990626969,"key":[{"keyData":{"typeUrl":"type.googleapis.com/google.crypto.tink.AesSivKey",` +
			`"value":"EkDJtKttbBT0e6Im/teItr/1LLM9eJRwSrICGqeSPLPgtmmKD+AaRwWdg+9xb8VogNpH+ZDC7nd1i9tqSCX3g4Wr",` +
			`"keyMaterialType":"SYMMETRIC"},"status":"ENABLED","keyId":2990626969,"outputPrefixType":"TINK"}]}`
		text   = "The same bytes are the same blob."
		first  = "01b24158990ab7d30a90997239b8f986569af9c62e84953c0f9dc85987a3bb5796c67dc586a687ccdae587512219c18fa6da91792929"
		second = "0293429a6dcf69a78c56c339c824791bb21560d545e3898094a362bdda400f7dbe65cbf6ba66988a45fcc238d7572964e9582ecbdc857f3cb9c53a0a154c288a3cf1"
	)
	m, err := secrets.Create(filepath.Join(t.TempDir(), "keys", "master.key"), compute.UUID{1})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := m.Seal([]byte(stored), nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := m.OpenObjectKey(sealed, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{first, second} {
		blob, _ := hex.DecodeString(of)
		got, err := key.OpenChunk(blob, []byte("chunk"), [16]byte{})
		if err != nil || string(got) != text {
			t.Errorf("%s is %q, %v", of, got, err)
		}
	}
	again, _, err := key.SealChunk(nil, []byte(text), []byte("chunk"))
	if err != nil || hex.EncodeToString(again) != second {
		t.Errorf("stored again it is %x, %v", again, err)
	}
}
