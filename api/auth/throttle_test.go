package auth_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"berth/api/auth"
)

func TestThrottle(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	th := auth.NewThrottle(6, 3, func() time.Time { return now })
	for i := range 3 {
		if _, ok := th.Allow("a"); !ok {
			t.Fatalf("try %d of the burst was refused", i)
		}
	}
	for range 100 { // Refused tries do not make the wait longer.
		if wait, ok := th.Allow("a"); ok || wait != 10*time.Second {
			t.Fatalf("got %v, %t, want to wait 10 s", wait, ok)
		}
	}
	if _, ok := th.Allow("b"); !ok {
		t.Error("another key was refused")
	}
	now = now.Add(9 * time.Second)
	if wait, ok := th.Allow("a"); ok || wait.Round(time.Millisecond) != time.Second {
		t.Errorf("after 9 s: got %v, %t", wait, ok)
	}
	now = now.Add(time.Second)
	if _, ok := th.Allow("a"); !ok {
		t.Error("after 10 s: refused")
	}
	if _, ok := auth.NewThrottle(6, 0, func() time.Time { return now }).Allow("a"); ok {
		t.Error("a burst of zero allowed a try")
	}
}

func TestThrottleIsBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	th := auth.NewThrottle(1, 1, func() time.Time { return now })
	th.Allow("old")
	th.Allow("busy")
	for i := range auth.MaxThrottled - 1 {
		th.Allow(fmt.Sprint(i))
		if i%1000 == 0 {
			th.Allow("busy")
		}
	}
	th.Allow(strings.Repeat("x", 1<<20)) // A key may have any length.
	if n := th.Remembered(); n != auth.MaxThrottled {
		t.Errorf("remembers %d keys, want %d", n, auth.MaxThrottled)
	}
	if _, ok := th.Allow("busy"); ok {
		t.Error("a key that is in use was forgotten")
	}
	if _, ok := th.Allow("old"); !ok {
		t.Error("the key that was quiet longest is still known")
	}
}

func TestLogins(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return now }
	l := auth.Logins{
		Accounts: auth.NewThrottle(1, 2, clock), Everyone: auth.NewThrottle(1, 5, clock), Addresses: auth.NewThrottle(1, 4, clock),
	}
	for _, step := range []struct {
		email, via, from string
		want             bool
	}{
		{"ann@example.com", "", "192.0.2.1", true},
		{" Ann@Example.com ", "", "192.0.2.2", true},
		{"ann@example.com", "", "192.0.2.3", false}, // One account from many addresses of a network.
		{"ann@example.com", "", "192.0.2.3", false},
		{"ann@example.com", "", "198.51.100.1", true}, // Its owner, from another network,
		{"ann@example.com", "n1", "192.0.2.1", true},  // and through a worker that reports the address.
		{"ann@example.com", "", "2001:db8:0:2::1", true},
		{"ann@example.com", "", "2001:db8:0:3::1", false}, // The ceiling of the account.
		{"bob@example.com", "", "2001:db8::1", true},
		{"cat@example.com", "", "2001:db8::2", true},
		{"dan@example.com", "", "2001:db8::3", true},
		{"eve@example.com", "", "2001:db8::4", true},
		{"fay@example.com", "", "2001:db8::5", false}, // Many accounts from one network.
		{"fay@example.com", "", "2001:db8:0:1::5", true},
		{"bob@example.com", "", "::ffff:192.0.2.1", true},
		{"gus@example.com", "", "192.0.2.1", true},
		{"hal@example.com", "", "192.0.2.1", true},
		{"ian@example.com", "", "::ffff:192.0.2.1", false}, // The same address, written otherwise.
		{"ian@example.com", "", "192.0.2.4", true},
	} {
		if _, got := l.Allow(step.email, step.via, netip.MustParseAddr(step.from)); got != step.want {
			t.Errorf("%s from %s %s: got %t", step.email, step.via, step.from, got)
		}
	}
}
