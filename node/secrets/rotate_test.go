package secrets_test

import (
	"bytes"
	"errors"
	"testing"

	"berth/compute"
	"berth/node/secrets"
)

// TestMasterRotation takes two servers through a rotation. Values that one seals at any
// step the other opens, and in the end the old key is gone.
func TestMasterRotation(t *testing.T) {
	a, path := mustCreate(t)
	other := t.TempDir() + "/master.key"
	b, err := secrets.Import(other, a.Bytes(), cluster(1))
	mustNot(t, err)
	context := []byte("place")
	both := func(step string) {
		t.Helper()
		for _, pair := range [][2]*secrets.Master{{a, b}, {b, a}} {
			sealed, err := pair[0].Seal([]byte("value"), context)
			mustNot(t, err)
			if got, err := pair[1].Unseal(sealed, context); err != nil || string(got) != "value" {
				t.Errorf("%s: %q, %v", step, got, err)
			}
		}
	}
	old, err := a.Seal([]byte("value"), context)
	mustNot(t, err)
	derived := a.Derive("x", 32)

	added, prefix, err := a.WithNewKey(b.Bytes())
	mustNot(t, err)
	mustNot(t, a.Join(path, added, cluster(1), false))
	both("one has the new key")
	mustNot(t, b.Join(other, added, cluster(1), false))
	if bytes.Equal(a.Prefix(), prefix) || !a.SealedNow(old) {
		t.Error("the new key seals at once")
	}
	sealing, err := a.SealingWith(prefix)
	mustNot(t, err)
	mustNot(t, b.Join(other, sealing, cluster(1), true))
	both("one seals with the new key")
	mustNot(t, a.Join(path, sealing, cluster(1), true))
	if !bytes.Equal(a.Prefix(), prefix) || a.SealedNow(old) {
		t.Error("the old key still seals")
	}
	fresh, err := a.Reseal(old, context)
	mustNot(t, err)
	mustNot(t, a.Retire(path, prefix, cluster(1)))
	both("one has no old key")
	mustNot(t, b.Retire(other, prefix, cluster(1)))
	for name, m := range map[string]*secrets.Master{"one": a, "the other": b} {
		if got, err := m.Unseal(fresh, context); err != nil || string(got) != "value" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := m.Unseal(old, context); err == nil {
			t.Errorf("%s opens what the old key sealed", name)
		}
		if !bytes.Equal(m.Derive("x", 32), derived) {
			t.Errorf("%s derives another key", name)
		}
	}
	again, err := secrets.Open(path, cluster(1))
	mustNot(t, err)
	if !bytes.Equal(again.Prefix(), prefix) {
		t.Error("the file on disk is another")
	}
}

// TestMasterRotationsAtOnce has two rotations on one server, step by step in turns: no key
// that has sealed is lost, and neither retires the other's key.
func TestMasterRotationsAtOnce(t *testing.T) {
	m, path := mustCreate(t)
	context := []byte("place")
	first, one, err := m.WithNewKey()
	mustNot(t, err)
	second, two, err := m.WithNewKey() // It has not seen the first one's key.
	mustNot(t, err)
	mustNot(t, m.Join(path, first, cluster(1), false))
	sealing, err := m.SealingWith(one)
	mustNot(t, err)
	mustNot(t, m.Join(path, sealing, cluster(1), true))
	sealed, err := m.Seal([]byte("value"), context)
	mustNot(t, err)
	mustNot(t, m.Join(path, second, cluster(1), false))
	if !bytes.Equal(m.Prefix(), one) {
		t.Error("a key that was only added changed the one that seals")
	}
	opens := func(step string) {
		t.Helper()
		if got, err := m.Unseal(sealed, context); err != nil || string(got) != "value" {
			t.Errorf("%s: %q, %v", step, got, err)
		}
	}
	opens("the second key is added")
	sealing, err = m.SealingWith(two)
	mustNot(t, err)
	mustNot(t, m.Join(path, sealing, cluster(1), true))
	opens("the second key seals")
	if err := m.Retire(path, one, cluster(1)); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("the first rotation retires the second one's key: %v", err)
	}
	opens("the first one tried to retire")
}

// TestMasterIsNotReplacedByAnother refuses the file of another cluster, and one that
// derives other keys.
func TestMasterIsNotReplacedByAnother(t *testing.T) {
	a, path := mustCreate(t)
	b, _ := mustCreate(t) // The same cluster's name, other keys.
	if err := a.Replace(path, b.Bytes(), cluster(1)); !errors.Is(err, secrets.ErrForeign) {
		t.Errorf("got %v", err)
	}
	for _, seals := range []bool{false, true} {
		if err := a.Join(path, b.Bytes(), cluster(1), seals); !errors.Is(err, secrets.ErrForeign) {
			t.Errorf("got %v", err)
		}
	}
	if _, _, err := a.WithNewKey([]byte("{}")); !errors.Is(err, secrets.ErrForeign) {
		t.Errorf("got %v", err)
	}
}

func mustNot(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
