package secrets_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/compute"
	"berth/node/secrets"
)

func cluster(n byte) compute.UUID { return compute.UUID{15: n} }

func mustCreate(t testing.TB) (*secrets.Master, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys", "master.key")
	m, err := secrets.Create(path, cluster(1))
	if err != nil {
		t.Fatal(err)
	}
	return m, path
}

func TestSeal(t *testing.T) {
	m, path := mustCreate(t)
	secret, context := []byte("the private half"), []byte("signing key 1")
	sealed, err := m.Seal(secret, context)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, secret) {
		t.Error("the plaintext is in the ciphertext")
	}
	again, err := secrets.Open(path, cluster(1))
	if err != nil {
		t.Fatal(err)
	}
	got, err := again.Unseal(sealed, context)
	if err != nil || !bytes.Equal(got, secret) {
		t.Errorf("after a restart: got %q, %v", got, err)
	}
	if _, err := m.Unseal(sealed, []byte("signing key 2")); err == nil {
		t.Error("unsealed in another context")
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := m.Unseal(bad, context); err == nil {
			t.Fatalf("unsealed with a flipped bit in byte %d", i)
		}
	}
	for n := range sealed {
		if _, err := m.Unseal(sealed[:n], context); err == nil {
			t.Fatalf("unsealed the first %d bytes", n)
		}
	}
	other, _ := mustCreate(t)
	if _, err := other.Unseal(sealed, context); err == nil {
		t.Error("unsealed with another master key")
	}
	if second, _ := m.Seal(secret, context); bytes.Equal(second, sealed) {
		t.Error("two seals are the same bytes")
	}
	if _, err := m.Seal(make([]byte, 16<<20+1), nil); compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("got %v for too much, want too_large", err)
	}
}

func TestDerive(t *testing.T) {
	m, path := mustCreate(t)
	again, err := secrets.Open(path, cluster(1))
	if err != nil {
		t.Fatal(err)
	}
	stream := m.Derive("stream tokens", 32)
	if len(stream) != 32 || !bytes.Equal(stream, again.Derive("stream tokens", 32)) {
		t.Error("the same purpose gave another key")
	}
	if bytes.Equal(stream, m.Derive("refresh tokens", 32)) {
		t.Error("two purposes gave one key")
	}
	other, _ := mustCreate(t)
	if bytes.Equal(stream, other.Derive("stream tokens", 32)) {
		t.Error("two master keys gave one key")
	}
}

func TestJoin(t *testing.T) {
	m, _ := mustCreate(t)
	path := filepath.Join(t.TempDir(), "keys", "master.key")
	for range 2 { // A join may be repeated.
		joined, err := secrets.Import(path, m.Bytes(), cluster(1))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(joined.Derive("x", 16), m.Derive("x", 16)) {
			t.Error("the imported key derives another key")
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("got %d files beside the key", len(entries)-1)
	}
	other, _ := mustCreate(t)
	if _, err := secrets.Import(path, other.Bytes(), cluster(1)); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("got %v for another key, want conflict", err)
	}
	if _, err := secrets.Create(path, cluster(1)); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("got %v for a second create, want conflict", err)
	}
	_, err = secrets.Import(filepath.Join(t.TempDir(), "k"), m.Bytes(), cluster(2))
	if !errors.Is(err, secrets.ErrForeign) {
		t.Errorf("got %v for another cluster's key, want ErrForeign", err)
	}
}

// otherKey returns a key file in which one letter of a key differs, as after a
// flipped bit. It is still a valid key, but not the one that seals.
func otherKey(t *testing.T, file []byte) []byte {
	t.Helper()
	at := bytes.Index(file, []byte(`"value": "`))
	if at < 0 {
		t.Fatalf("no key in %s", file)
	}
	at += len(`"value": "`) + 10
	damaged := bytes.Clone(file)
	damaged[at] = 'A'
	if file[at] == 'A' {
		damaged[at] = 'B'
	}
	return damaged
}

func TestOpenExplainsErrors(t *testing.T) {
	_, path := mustCreate(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(whole, &fields); err != nil {
		t.Fatal(err)
	}
	without := func(name string) []byte {
		rest := map[string]any{}
		for k, v := range fields {
			if k != name {
				rest[k] = v
			}
		}
		data, err := json.Marshal(rest)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, test := range []struct {
		name    string
		data    []byte
		mode    os.FileMode
		cluster compute.UUID
		want    string
	}{
		{"empty", nil, 0o600, cluster(1), "not a master key file"},
		{"torn", whole[:len(whole)/2], 0o600, cluster(1), "not a master key file"},
		{"format", without("format"), 0o600, cluster(1), "not a master key file"},
		{"cluster", whole, 0o600, cluster(2), "belongs to another cluster"},
		{"no sealing key", without("aead"), 0o600, cluster(1), "damaged"},
		{"no deriving key", without("prf"), 0o600, cluster(1), "damaged"},
		{"another key", otherKey(t, whole), 0o600, cluster(1), "damaged"},
		{"no checksum", without("crc32c"), 0o600, cluster(2), "belongs to another cluster"}, // It is read.
		{"readable by others", whole, 0o640, cluster(1), "must be 0600"},
		{"huge", make([]byte, 65<<10), 0o600, cluster(1), "at most"},
	} {
		path := filepath.Join(t.TempDir(), "master.key")
		if err := os.WriteFile(path, test.data, test.mode); err != nil {
			t.Fatal(err)
		}
		_, err := secrets.Open(path, test.cluster)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
	missing := filepath.Join(t.TempDir(), "master.key")
	_, err = secrets.Open(missing, cluster(1))
	if !errors.Is(err, secrets.ErrMissing) || !strings.Contains(err.Error(), missing) {
		t.Errorf("got %v, want ErrMissing with the path", err)
	}
}
