package auth_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"berth/api/auth"
	"berth/compute"
)

// cheap is the least that is allowed.
func cheap() auth.PasswordCost {
	return auth.PasswordCost{MemoryKiB: 19 << 10, Passes: 2, Threads: 1}
}

func mustPasswords(t testing.TB, cost auth.PasswordCost) *auth.Passwords {
	t.Helper()
	p, err := auth.NewPasswords(cost, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPassword(t *testing.T) {
	p := mustPasswords(t, cheap())
	const password = "correct horse Ünïcode"
	stored, err := p.Hash(t.Context(), password)
	if err != nil || !strings.HasPrefix(stored, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatalf("got %q, %v", stored, err)
	}
	if second, _ := p.Hash(t.Context(), password); second == stored {
		t.Error("two hashes of one password are the same")
	}
	dearer := cheap()
	dearer.Passes = 3
	for _, test := range []struct {
		name       string
		cost       auth.PasswordCost
		password   string
		stored     string
		ok, rehash bool
	}{
		{"right", cheap(), password, stored, true, false},
		{"wrong", cheap(), password + "x", stored, false, false},
		{"empty", cheap(), "", stored, false, false},
		{"nobody", cheap(), password, "", false, false},
		{"nobody, empty", cheap(), "", "", false, false},
		{"too long", cheap(), strings.Repeat("x", 1<<20), stored, false, false},
		{"right, cost has risen", dearer, password, stored, true, true},
		{"wrong, cost has risen", dearer, "x", stored, false, false},
	} {
		ok, rehash, err := mustPasswords(t, test.cost).Verify(t.Context(), test.password, test.stored)
		if err != nil || ok != test.ok || rehash != test.rehash {
			t.Errorf("%s: got %t, %t, %v", test.name, ok, rehash, err)
		}
	}
}

func TestPasswordLength(t *testing.T) {
	p := mustPasswords(t, cheap())
	for _, test := range []struct {
		password string
		ok       bool
	}{
		{"", false},
		{"123456789", false},
		{"1234567890", true},
		{"ÄÖÜäöüßéè", false},
		{"ÄÖÜäöüßéèê", true},
		{strings.Repeat("x", 256), true},
		{strings.Repeat("x", 257), false},
	} {
		_, err := p.Hash(t.Context(), test.password)
		if test.ok != (err == nil) || !test.ok && compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("%.12q, %d bytes: got %v", test.password, len(test.password), err)
		}
	}
}

func TestStoredHashMustBeWhole(t *testing.T) {
	p := mustPasswords(t, cheap())
	stored, err := p.Hash(t.Context(), "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"x", "$argon2id$", stored + "x", stored[:len(stored)-1], stored + "$",
		strings.Replace(stored, "argon2id", "argon2i", 1),
		strings.Replace(stored, "v=19", "v=16", 1),
		strings.Replace(stored, "m=19456", "m=8", 1),
		strings.Replace(stored, "m=19456", "m=4294967295", 1),
		strings.Replace(stored, "m=19456", "m=99999999999", 1),
		strings.Replace(stored, "t=2", "t=0", 1),
		strings.Replace(stored, "t=2", "t=1000000", 1),
		strings.Replace(stored, "p=1", "p=0", 1),
		strings.Replace(stored, "p=1", "p=1,x=2", 1),
		strings.Replace(stored, "p=1", "p=01", 1),
	} {
		if ok, _, err := p.Verify(t.Context(), "correct horse", bad); ok || err == nil {
			t.Errorf("%q: got %t, %v", bad, ok, err)
		}
	}
}

func TestPasswordCostHasBounds(t *testing.T) {
	for _, cost := range []auth.PasswordCost{
		{},
		{MemoryKiB: 1 << 10, Passes: 2, Threads: 1},
		{MemoryKiB: 19 << 10, Passes: 1, Threads: 1},
		{MemoryKiB: 19 << 10, Passes: 2},
		{MemoryKiB: 1 << 30, Passes: 2, Threads: 1},
	} {
		if _, err := auth.NewPasswords(cost, rand.Reader); compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("%+v: got %v", cost, err)
		}
	}
	if _, err := auth.NewPasswords(auth.DefaultPasswordCost(), rand.Reader); err != nil {
		t.Error(err)
	}
}

func TestPasswordQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustPasswords(t, cheap())
		defer p.Occupy()()
		ctx, cancel := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		for range auth.MaxWaiting {
			waiters.Go(func() {
				if _, _, err := p.Verify(ctx, "some password", ""); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait() // They wait for their turn now.
		_, _, err := p.Verify(ctx, "some password", "")
		if e, ok := errors.AsType[*compute.Error](err); !ok || e.Code != compute.CodeRateLimited || e.RetryAfter <= 0 {
			t.Errorf("got %v, want rate_limited with a hint when to try again", err)
		}
		cancel()
		waiters.Wait()
	})
}

func TestCallerWhoLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustPasswords(t, cheap())
		release := p.Occupy()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, _, err := p.Verify(ctx, "some password", "")
			done <- err
		}()
		synctest.Wait() // It waits for its turn now.
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		release()
		if _, _, err := p.Verify(t.Context(), "some password", ""); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
