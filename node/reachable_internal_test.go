package node

import (
	"net"
	"testing"

	"berth/cluster"
)

// TestReachable holds that a node which listens on all addresses says one of the machine's.
func TestReachable(t *testing.T) {
	own := "::" // On a machine without a network.
	if host, err := cluster.AdvertisedHost("", net.IPv6unspecified); err == nil {
		own = host
	}
	for _, test := range []struct{ listening, advertise, want string }{
		{"127.0.0.1", "", "127.0.0.1"},
		{"127.0.0.1", "gpu-1", "127.0.0.1"},
		{"10.0.0.1", "", "10.0.0.1"},
		{"10.0.0.1", "gpu-1", "gpu-1"},
		{"::", "gpu-1", "gpu-1"},
		{"::", "", own},
		{"0.0.0.0", "", own},
	} {
		got := reachable(&net.TCPAddr{IP: net.ParseIP(test.listening), Port: 6470}, test.advertise)
		if test.want == "::" {
			test.want = test.listening
		}
		if want := net.JoinHostPort(test.want, "6470"); got != want {
			t.Errorf("%s as %q is %s, want %s", test.listening, test.advertise, got, want)
		}
	}
}
