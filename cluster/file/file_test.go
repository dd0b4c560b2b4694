package file_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"berth/cluster/file"
)

func TestWriteReplacesTheWholeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, text := range []string{"a long first version", "short"} {
		if err := file.Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("read %q, %v", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
	if err := file.Write(filepath.Join(path, "not", "there"), nil); err == nil {
		t.Error("a file without a directory was written")
	}
}

func TestSealedFilesTellEveryFlippedBit(t *testing.T) {
	for name, text := range map[string]string{
		"JSON": "{\n\t\"id\": \"a\",\n\t\"crc32c\": \"" + file.Unsealed + "\"\n}\n",
		"PEM":  "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := file.WriteSealed(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		sealed, err := file.ReadSealed(path)
		if err != nil || len(sealed) < len(text) {
			t.Fatalf("%s: %q, %v", name, sealed, err)
		}
		for bit := range 8 * len(sealed) {
			damaged := bytes.Clone(sealed)
			damaged[bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := file.ReadSealed(path)
			// The checksum does not cover its own name.
			inName := bytes.Contains(damaged, sealed[:bytes.Index(sealed, []byte("crc32c"))-1])
			taken := err == nil && inName && len(got) == len(sealed)
			if !taken && !errors.Is(err, file.ErrDamaged) {
				t.Errorf("%s, bit %d: %q, %v", name, bit, got, err)
			}
		}
	}
}

func TestFilesWithoutASealAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old")
	if err := file.Write(path, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if got, err := file.ReadSealed(path); err != nil || string(got) != "{}" {
		t.Errorf("%q, %v", got, err)
	}
}
