package node

import (
	"net"
	"testing"
)

// fakeListener is a listener at an address.
type fakeListener struct {
	net.Listener

	at string
}

func (l fakeListener) Addr() net.Addr { return address(l.at) }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// TestS3Endpoint says where clients reach S3 that have reached the API at some base: at the port
// next to it, unless something stands between, which may know the API alone.
func TestS3Endpoint(t *testing.T) {
	port := fakeListener{at: "0.0.0.0:6473"}
	for _, test := range []struct {
		name, base, url string
		listener        net.Listener
		handedOn        bool
		want            string
	}{
		{"directly", "http://10.0.0.5:6470", "", port, false, "http://10.0.0.5:6473"},
		{"directly, over TLS", "https://[::1]:6470", "", port, false, "https://[::1]:6473"},
		{"by a proxy", "https://berth.example.org:8443", "", port, false, "https://berth.example.org:8443/s3"},
		{"by another port", "http://127.0.0.1:9000", "", port, false, "http://127.0.0.1:9000/s3"},
		{"at a port that goes without saying", "https://berth.example.org", "", port, false, "https://berth.example.org:6473"},
		{"by a worker", "http://10.0.0.9:6470", "", port, true, "http://10.0.0.9:6470/s3"},
		{"without a port", "http://10.0.0.5:6470", "", nil, false, "http://10.0.0.5:6470/s3"},
		{"as a setting says", "http://10.0.0.5:6470", "https://s3.example.org", port, true, "https://s3.example.org"},
	} {
		api := fakeListener{at: "0.0.0.0:6470"}
		if test.base == "https://berth.example.org" {
			api.at = "0.0.0.0:443"
		}
		p := &s3Part{node: &Node{listener: api}, listener: test.listener, url: test.url}
		if got := p.endpoint(test.base, test.handedOn); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	behind := &Node{listener: fakeListener{at: "0.0.0.0:6470"}}
	behind.cfg.API.PublicURL = "https://berth.example.org:6470"
	p := &s3Part{node: behind, listener: port}
	if got := p.endpoint(behind.cfg.API.PublicURL, false); got != "https://berth.example.org:6470/s3" {
		t.Errorf("behind a public URL: %q", got)
	}
}
