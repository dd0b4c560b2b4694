package deploy_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"berth/node/config"
)

// inOwnRoot runs the installer with its own, empty /etc, /var/lib and /run. It
// finds a fake systemctl that only records its calls. CONFIG is an existing
// configuration of the machine.
const inOwnRoot = `
set -e
export PYTHONDONTWRITEBYTECODE=1
for dir in /usr/local/bin /etc /var/lib /run; do mount -t tmpfs none $dir; done
mkdir -p /run/systemd/system
[ -z "$CONFIG" ] || { mkdir /etc/berth; cp "$CONFIG" /etc/berth/berth.yaml; }
bash install.sh "$@"
cp -a /etc/berth "$OUT"
`

// starter is a machine on which the installer starts a node, with a record of
// its calls.
type starter struct {
	unshare, out, notes string
	machine
}

func newStarter(t *testing.T) starter {
	t.Helper()
	s := starter{unshare: mustTool(t, "unshare"), out: t.TempDir(), machine: newMachine(t)}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to install into a root of its own")
	}
	s.notes = filepath.Join(s.out, "notes")
	note := "#!/bin/sh\necho \"$(basename \"$0\") $*\" >>" + s.notes + "\n"
	mustWrite(t, filepath.Join(s.out, "systemctl"), note, 0o755)
	mustWrite(t, s.binary, note, 0o755)
	return s
}

// start runs the installer on a machine with the configuration, "" for none.
func (s starter) start(t *testing.T, config string, args ...string) string {
	t.Helper()
	env := []string{"CONFIG=", "OUT=" + s.out, "PATH=" + s.out + ":" + os.Getenv("PATH")}
	if config != "" {
		file := filepath.Join(t.TempDir(), "berth.yaml")
		mustWrite(t, file, config, 0o644)
		env[0] += file
	}
	args = append([]string{"-m", "bash", "-c", inOwnRoot, "install.sh", "--binary", s.binary}, args...)
	return mustExecute(t, ".", env, s.unshare, args...)
}

// mustReady serves a fake API on the IP address. The node is ready from the
// second request on. mustReady returns a counter of the requests.
func mustReady(t *testing.T, ip string, tls bool) (port int, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	ready := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || asked.Add(1) < 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	ready.Listener.Close()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	ready.Listener = l
	if tls {
		ready.StartTLS()
	} else {
		ready.Start()
	}
	t.Cleanup(ready.Close)
	return l.Addr().(*net.TCPAddr).Port, asked
}

// TestInstallStarts installs the first machine, which creates a join token, and
// another one, which joins the cluster.
func TestInstallStarts(t *testing.T) {
	s := newStarter(t)
	port, asked := mustReady(t, "127.0.0.1", false)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	said := s.start(t, "", "--api-addr", addr, "--uses", "2", "--token-out", filepath.Join(s.out, "join.token"))
	if !strings.Contains(said, "ready") {
		t.Errorf("got %s", said)
	}
	if asked.Load() < 2 {
		t.Error("did not wait until the node was ready")
	}
	want := "berth config check /etc/berth/berth.yaml.new\n" +
		"systemctl daemon-reload\nsystemctl enable --quiet berth.service\nsystemctl restart berth.service\n" +
		"berth admin token create --addr http://" + addr + " --token-file /var/lib/berth/root_token" +
		" --role server --ttl 1h --uses 2 --out " + filepath.Join(s.out, "join.token") + "\n"
	if got := mustRead(t, s.notes); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	s.start(t, "", "--api-addr", addr, "--advertise", "10.0.0.2", "--join", "10.0.0.1:6471", "--token-file", s.token)
	if _, err := os.Stat(filepath.Join(s.out, "berth", "join.token")); err == nil {
		t.Error("the join token was kept")
	}
	if got := mustRead(t, s.notes); strings.Count(got, "admin token") != 1 {
		t.Errorf("a node that joined made a token:\n%s", got)
	}
}

// TestInstallAsksWhereTheAPIIs checks that the installer finds the API at the
// address in the options or in an existing configuration.
func TestInstallAsksWhereTheAPIIs(t *testing.T) {
	tests := []struct {
		name    string
		serve   string // The only IP address of the API.
		tls     bool
		options string // The value of --api-addr, and
		config  string // the existing configuration; %d is the port.
		want    string // The URL for creating the token.
	}{
		{name: "one address", serve: "127.0.0.2", options: "127.0.0.2:%d", want: "http://127.0.0.2:%d"},
		{name: "every address", serve: "127.0.0.1", options: "0.0.0.0:%d", want: "http://127.0.0.1:%d"},
		{name: "every address of IPv6", serve: "127.0.0.1", options: "[::]:%d", want: "http://127.0.0.1:%d"},
		{name: "no address", serve: "127.0.0.1", options: ":%d", want: "http://127.0.0.1:%d"},
		{
			name: "the configuration's", serve: "127.0.0.2", options: "127.0.0.9:1", want: "http://127.0.0.2:%d",
			config: "api:\n  addr: 127.0.0.2:%d # Not all: it has colons.\nrpc:\n  addr: 127.0.0.3:1\n",
		},
		{
			name: "TLS", serve: "127.0.0.2", tls: true, options: "127.0.0.9:1", want: "https://127.0.0.2:%d",
			config: "api:\n  addr: '127.0.0.2:%d'\n  tls:\n    cert: /etc/berth/api.crt\n    key: /etc/berth/api.key\n",
		},
		{
			name: "TLS under a name", serve: "127.0.0.1", tls: true, options: "127.0.0.9:1", want: "https://gpu-1.example.com",
			config: "api:\n  addr: 0.0.0.0:%d\n  public_url: https://gpu-1.example.com\n  tls: \n    cert: \"api.crt\"\n    key: api.key\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStarter(t)
			port, asked := mustReady(t, tt.serve, tt.tls)
			with := func(text string) string { return strings.ReplaceAll(text, "%d", fmt.Sprint(port)) }
			s.start(t, with(tt.config), "--api-addr", with(tt.options), "--uses", "1", "--token-out", filepath.Join(s.out, "join.token"))
			cfg, err := config.Load(filepath.Join(s.out, "berth", "berth.yaml"), nil, nil)
			if err != nil || tt.config == "" && cfg.API.Addr != with(tt.options) {
				t.Errorf("the configuration has %q, %v", cfg.API.Addr, err)
			}
			if asked.Load() < 2 {
				t.Errorf("it was asked %d times", asked.Load())
			}
			if got, want := mustRead(t, s.notes), " --addr "+with(tt.want)+" "; !strings.Contains(got, want) {
				t.Errorf("got\n%s\nwant%s", got, want)
			}
		})
	}
}
