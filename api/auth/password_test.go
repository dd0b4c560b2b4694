package auth_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	stored, err := p.Hash(t.Context(), "net", password)
	if err != nil || !strings.HasPrefix(stored, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatalf("got %q, %v", stored, err)
	}
	if second, _ := p.Hash(t.Context(), "net", password); second == stored {
		t.Error("two hashes of one password are the same")
	}
	dearer := cheap()
	dearer.Passes = 3
	// Hashes of other costs stay good.
	other := auth.PasswordCost{MemoryKiB: 46 << 10, Passes: 4, Threads: 1}
	otherStored, err := mustPasswords(t, other).Hash(t.Context(), "net", password)
	if err != nil {
		t.Fatal(err)
	}
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
		{"right, of another cost", cheap(), password, otherStored, true, true},
		{"wrong, cost has risen", dearer, "x", stored, false, false},
	} {
		ok, rehash, err := mustPasswords(t, test.cost).Verify(t.Context(), "net", test.password, test.stored)
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
		_, err := p.Hash(t.Context(), "net", test.password)
		if test.ok != (err == nil) || !test.ok && compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("%.12q, %d bytes: got %v", test.password, len(test.password), err)
		}
	}
}

func TestStoredHashMustBeWhole(t *testing.T) {
	p := mustPasswords(t, cheap())
	stored, err := p.Hash(t.Context(), "net", "correct horse")
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
		if ok, _, err := p.Verify(t.Context(), "net", "correct horse", bad); ok || err == nil {
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

// occupy takes the turn to hash for a network.
func occupy(t testing.TB, p *auth.Passwords, from string) (release func()) {
	t.Helper()
	release, err := p.Occupy(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// TestPasswordQueueIsBounded has one network fill its share of the line: others
// may wait still, until the line is full.
func TestPasswordQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustPasswords(t, cheap())
		defer occupy(t, p, "first")()
		ctx, cancel := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		full := func(from string) {
			synctest.Wait() // The others wait for their turn now.
			_, _, err := p.Verify(ctx, from, "some password", "")
			if e, ok := errors.AsType[*compute.Error](err); !ok || e.Code != compute.CodeRateLimited || e.RetryAfter <= 0 {
				t.Errorf("%s: got %v, want rate_limited with a hint when to try again", from, err)
			}
		}
		for i := range auth.MaxCallers - 1 {
			network := fmt.Sprint("network ", i/auth.MaxOfNetwork)
			waiters.Go(func() {
				if _, _, err := p.Verify(ctx, network, "some password", ""); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
			if i == auth.MaxOfNetwork-1 {
				full(network)
			}
		}
		full("another network")
		cancel()
		waiters.Wait()
	})
}

// TestNetworksHashInTurn has one network ask a lot before another asks once:
// that one is next.
func TestNetworksHashInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustPasswords(t, cheap())
		release := occupy(t, p, "greedy")
		ended := make(chan string, 4)
		for _, from := range []string{"greedy", "greedy", "greedy", "modest"} {
			go func() {
				if _, _, err := p.Verify(t.Context(), from, "some password", ""); err != nil {
					t.Error(err)
				}
				ended <- from
			}()
			synctest.Wait()
		}
		release()
		if first := <-ended; first != "modest" {
			t.Errorf("%s was first", first)
		}
		for range cap(ended) - 1 {
			<-ended
		}
	})
}

// TestHashMemoryIsCollected holds that the memory of a hash is collected before
// the next one allocates its own, and not twice.
func TestHashMemoryIsCollected(t *testing.T) {
	p := mustPasswords(t, cheap())
	var cycles uint64
	collected := 0
	p.SetMemory(func() uint64 { return cycles }, func() { collected++ })
	for i, step := range []struct {
		cycles uint64 // Collections that end before the hash.
		want   int    // Collections that hashes have asked for.
	}{{0, 0}, {0, 1}, {1, 2}, {2, 2}, {0, 3}} {
		cycles += step.cycles
		if _, _, err := p.Verify(t.Context(), "net", "some password", ""); err != nil {
			t.Fatal(err)
		}
		if collected != step.want {
			t.Errorf("hash %d: %d collections, want %d", i, collected, step.want)
		}
	}
}

func TestCallerWhoLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustPasswords(t, cheap())
		release := occupy(t, p, "net")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, _, err := p.Verify(ctx, "net", "some password", "")
			done <- err
		}()
		synctest.Wait() // It waits for its turn now.
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		release()
		if _, _, err := p.Verify(t.Context(), "net", "some password", ""); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
