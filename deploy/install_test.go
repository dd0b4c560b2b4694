package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/node/config"
)

// machine is a directory that acts as a root directory, and a fake berth
// program that only accepts a configuration.
type machine struct{ root, binary, token string }

func newMachine(t *testing.T) machine {
	t.Helper()
	dir := t.TempDir()
	m := machine{
		root:   filepath.Join(dir, "root"),
		binary: filepath.Join(dir, "berth"),
		token:  filepath.Join(dir, "token"),
	}
	mustWrite(t, m.binary, "#!/bin/sh\ntest \"$1 $2\" = 'config check' && test -s \"$3\"\n", 0o755)
	mustWrite(t, m.token, "bjt_0123456789\n", 0o600)
	return m
}

func mustWrite(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// install runs the installer below the machine's root.
func (m machine) install(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return execute(t, ".", nil, "bash", append([]string{"install.sh", "--root", m.root, "--binary", m.binary}, args...)...)
}

func (m machine) mustInstall(t *testing.T, args ...string) {
	t.Helper()
	if out, err := m.install(t, args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (m machine) path(name string) string { return filepath.Join(m.root, name) }

func TestInstallFirst(t *testing.T) {
	m := newMachine(t)
	m.mustInstall(t, "--name", "n1", "--advertise", "10.0.0.1", "--simulated", "h100:2,l40s:4")
	for name, mode := range map[string]os.FileMode{
		"usr/local/bin/berth":              0o755,
		"etc/berth/berth.yaml":             0o644,
		"etc/systemd/system/berth.service": 0o644,
		"var/lib/berth":                    0o700 | os.ModeDir,
	} {
		info, err := os.Stat(m.path(name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s: mode %v, want %v", name, info.Mode(), mode)
		}
	}
	if _, err := os.Stat(m.path("etc/berth/join.token")); err == nil {
		t.Error("the first machine has a join token")
	}
	cfg, err := config.Load(m.path("etc/berth/berth.yaml"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Name != "n1" || cfg.Advertise != "10.0.0.1" || cfg.API.Addr != "0.0.0.0:6470" || len(cfg.Join.Hosts) != 0 {
		t.Errorf("got %+v", cfg)
	}
	if strings.Join(cfg.GPUs.Simulated, ",") != "h100:2,l40s:4" || cfg.GPUs.Source != "simulated" {
		t.Errorf("got %+v", cfg.GPUs)
	}
}

func TestInstallJoins(t *testing.T) {
	m := newMachine(t)
	m.mustInstall(t, "--name", "n2", "--advertise", "10.0.0.2", "--join", "10.0.0.1:6471,10.0.0.3:6471", "--token-file", m.token)
	cfg, err := config.Load(m.path("etc/berth/berth.yaml"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(cfg.Join.Hosts, " ") != "10.0.0.1:6471 10.0.0.3:6471" || cfg.Join.TokenFile != "/etc/berth/join.token" {
		t.Errorf("got %+v", cfg.Join)
	}
	info, err := os.Stat(m.path("etc/berth/join.token"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("join token: %v, %v", info, err)
	}
}

// TestInstallAgain checks that a second run replaces the program and changes
// neither configuration nor state.
func TestInstallAgain(t *testing.T) {
	m := newMachine(t)
	m.mustInstall(t, "--name", "n1")
	edited := mustRead(t, m.path("etc/berth/berth.yaml")) + "voters: 5\n"
	mustWrite(t, m.path("etc/berth/berth.yaml"), edited, 0o644)
	mustWrite(t, m.path("var/lib/berth/node.json"), "{}", 0o600)
	mustWrite(t, m.binary, "#!/bin/sh\n# newer\n", 0o755)
	m.mustInstall(t, "--name", "other")
	if mustRead(t, m.path("etc/berth/berth.yaml")) != edited || mustRead(t, m.path("var/lib/berth/node.json")) != "{}" {
		t.Error("configuration or state changed")
	}
	if !strings.Contains(mustRead(t, m.path("usr/local/bin/berth")), "newer") {
		t.Error("the program is still the old one")
	}
	left, err := filepath.Glob(m.path("*/*/*.new"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestInstallRefuses(t *testing.T) {
	m := newMachine(t)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"unknown option", []string{"--token", "bjt_secret"}, "unknown option --token"},
		{"no value", []string{"--name"}, "--name needs a value"},
		{"no program", []string{"--binary", "/nowhere"}, "no program at /nowhere"},
		{"join without token", []string{"--join", "a:1"}, "--join needs --token-file"},
		{"token that is not there", []string{"--token-file", "/nowhere"}, "no join token in /nowhere"},
		{"uses alone", []string{"--uses", "2"}, "--uses needs --token-out"},
		{"out alone", []string{"--token-out", "x"}, "--token-out needs --uses"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := m.install(t, test.args...)
			if err == nil || !strings.Contains(out, test.want) {
				t.Errorf("got %v, %q; want %q", err, out, test.want)
			}
			if _, err := os.Stat(m.root); err == nil {
				t.Error("something was installed")
			}
		})
	}
}

// TestInstallRefusesBadConfig checks that a configuration that the program
// refuses is not installed.
func TestInstallRefusesBadConfig(t *testing.T) {
	m := newMachine(t)
	mustWrite(t, m.binary, "#!/bin/sh\necho 'line 2: name: bad'\nexit 1\n", 0o755)
	out, err := m.install(t, "--name", "n 1")
	if err == nil || !strings.Contains(out, "line 2: name: bad") {
		t.Errorf("got %v, %q", err, out)
	}
	if _, err := os.Stat(m.path("etc/berth/berth.yaml")); err == nil {
		t.Error("it was installed")
	}
}
