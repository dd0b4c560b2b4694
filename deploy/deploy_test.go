// Package deploy_test checks what is deployed beside the binary, with the
// programs that will read it.
package deploy_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/node/config"
)

// toolTimeout is how long any of the tools may take on a slow machine.
const toolTimeout = 2 * time.Minute

// mustTool returns the path of a program that make test installs.
func mustTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" { // There the set-up ran: it must not be missing.
			t.Fatalf("%s is not installed: scripts/setup.sh test should have done that", name)
		}
		t.Skipf("%s is not installed: scripts/setup.sh test does that", name)
	}
	return path
}

// execute executes the command in dir and returns what it printed.
func execute(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustExecute executes a command that has to succeed.
func mustExecute(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := execute(t, dir, env, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return out
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestShellScripts(t *testing.T) {
	shellcheck := mustTool(t, "shellcheck")
	scripts := []string{"install.sh", "../.ci/run", "../.githooks/pre-commit"}
	more, err := filepath.Glob("../scripts/*.sh")
	if err != nil {
		t.Fatal(err)
	}
	mustExecute(t, ".", nil, shellcheck, append(scripts, more...)...)
}

func TestVagrantfile(t *testing.T) {
	vagrant := mustTool(t, "vagrant")
	// The Vagrantfile makes a directory beside itself.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Vagrantfile"), []byte(mustRead(t, "../Vagrantfile")), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"VAGRANT_HOME=" + t.TempDir(), "VAGRANT_CHECKPOINT_DISABLE=1"}
	out := mustExecute(t, dir, env, vagrant, "validate", "--ignore-provider")
	if !strings.Contains(out, "validated successfully") {
		t.Errorf("got %s", out)
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		if !strings.Contains(out, "==> "+name+":") {
			t.Errorf("no machine %s:\n%s", name, out)
		}
	}
}

func TestPrometheus(t *testing.T) {
	promtool := mustTool(t, "promtool")
	mustExecute(t, "prometheus", nil, promtool, "check", "config", "berth.yml")
	mustExecute(t, "prometheus", nil, promtool, "test", "rules", "berth.rules.test.yml")
}

// TestAlertsNameMetrics holds that no alert waits for a metric that no part of
// the program has.
func TestAlertsNameMetrics(t *testing.T) {
	source := allSource(t)
	rules := mustRead(t, "prometheus/berth.rules.yml")
	// Recorded names have a colon; what a histogram is made of has a suffix.
	names := regexp.MustCompile(`\b(berth_[a-z_]+|DCGM_FI_[A-Z_]+)\b`).FindAllString(rules, -1)
	if len(names) == 0 {
		t.Fatal("the rules name no metric")
	}
	for _, name := range names {
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, part)
		}
		if !strings.Contains(source, `"`+name+`"`) {
			t.Errorf("%s is in the rules and nowhere in the program", name)
		}
	}
}

// allSource returns the text of every Go file that is no test.
func allSource(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestUnit(t *testing.T) {
	analyze := mustTool(t, "systemd-analyze")
	// The program is not installed here; verify wants it to be there.
	text := strings.ReplaceAll(mustRead(t, "berth.service"), "/usr/local/bin/berth", "/bin/true")
	unit := filepath.Join(t.TempDir(), "berth.service")
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := mustExecute(t, ".", nil, analyze, "verify", "--man=no", unit); out != "" {
		t.Error(out)
	}
	for _, want := range []string{
		"Restart=always", "KillMode=process", "Delegate=yes", "StartLimitIntervalSec=0", "RestartPreventExitStatus=3",
		"OOMScoreAdjust=-900",
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("the unit does not say %s", want)
		}
	}
}

func TestExampleConfig(t *testing.T) {
	faults, err := config.Check("berth.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// TestExampleNamesEverySetting holds that the example shows each setting,
// commented out or not, and no other.
func TestExampleNamesEverySetting(t *testing.T) {
	// A comment that is a setting has its place among the others: two spaces
	// for each level behind the sign.
	text := regexp.MustCompile(`(?m)^( *)# ([a-z_]+:|  |- )`).ReplaceAllString(mustRead(t, "berth.yaml"), "$1$2")
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	faults, err := config.Check(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Errorf("with all comments taken away: %v", fault)
	}
	named := map[string]bool{}
	var path []string
	for line := range strings.Lines(text) {
		setting := regexp.MustCompile(`^( *)([a-z_]+):`).FindStringSubmatch(line)
		if setting == nil {
			continue
		}
		level := len(setting[1]) / 2
		if level > len(path) {
			t.Fatalf("%q is in no section", line)
		}
		path = append(path[:level], setting[2])
		named[strings.Join(path, ".")] = true
	}
	want := []string{"executor.mounts"} // Of the file alone.
	for _, key := range config.Keys() {
		want = append(want, key.Path)
	}
	for _, key := range want {
		if !named[key] {
			t.Errorf("it does not name %s", key)
		}
	}
}
