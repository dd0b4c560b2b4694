package secrets_test

import (
	"bytes"
	"strings"
	"testing"

	"berth/node/secrets"
)

// TestDataKey seals values for one place only, with a key that one organization has.
func TestDataKey(t *testing.T) {
	m, _ := mustCreate(t)
	sealedKey, err := m.NewDataKey([]byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.OpenDataKey(sealedKey, []byte("two")); err == nil {
		t.Error("another organization opened the key")
	}
	key, err := m.OpenDataKey(sealedKey, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "hunter2", strings.Repeat("v", 32<<10)} {
		sealed, err := key.Seal(value, []byte("place"))
		if err != nil {
			t.Fatal(err)
		}
		if value != "" && bytes.Contains(sealed, []byte(value)) {
			t.Errorf("%.10q is in the ciphertext", value)
		}
		if got, err := key.Unseal(sealed, []byte("place")); err != nil || got != value {
			t.Errorf("got %.10q, %v", got, err)
		}
		if _, err := key.Unseal(sealed, []byte("elsewhere")); err == nil {
			t.Error("read in another place")
		}
		sealed[len(sealed)-1] ^= 1
		if _, err := key.Unseal(sealed, []byte("place")); err == nil {
			t.Error("read with a flipped bit")
		}
	}
}

// TestDataKeyRotation holds that what earlier keys sealed is read until they are retired.
func TestDataKeyRotation(t *testing.T) {
	m, _ := mustCreate(t)
	context := []byte("one")
	first, err := m.NewDataKey(context)
	if err != nil {
		t.Fatal(err)
	}
	open := func(sealed []byte) *secrets.DataKey {
		t.Helper()
		key, err := m.OpenDataKey(sealed, context)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	old, err := open(first).Seal("value", context)
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.RotateDataKey(first, context)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := open(second).Unseal(old, context); err != nil || got != "value" {
		t.Errorf("after the rotation: %q, %v", got, err)
	}
	fresh, err := open(second).Seal("value", context)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(first).Unseal(fresh, context); err == nil {
		t.Error("the new key is not what seals")
	}
	third, err := m.RetireDataKeys(second, context)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := open(third).Unseal(fresh, context); err != nil || got != "value" {
		t.Errorf("after the retirement: %q, %v", got, err)
	}
	if _, err := open(third).Unseal(old, context); err == nil {
		t.Error("a retired key still opens")
	}
	if _, err := m.RotateDataKey(first, []byte("two")); err == nil {
		t.Error("another organization's key is rotated")
	}
}
