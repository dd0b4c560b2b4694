// Package deploy_test checks the files that are deployed beside the binary,
// with the programs that read them.
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

// toolTimeout is the timeout of a tool on a slow machine.
const toolTimeout = 2 * time.Minute

// mustTool returns the path of a program that make test installs.
func mustTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" { // The setup script ran there, so the tool must exist.
			t.Fatalf("%s is not installed: scripts/setup.sh test should have done that", name)
		}
		t.Skipf("%s is not installed: scripts/setup.sh test does that", name)
	}
	return path
}

// execute runs the command in dir and returns its output.
func execute(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustExecute runs a command that must succeed.
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

// TestOpenAPILintIsNotLost lints the OpenAPI document on a machine without npm: that fails and
// says what to do. It is skipped only for who asks, and then listed.
func TestOpenAPILintIsNotLost(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bash", "dirname"} {
		if err := os.Symlink(mustTool(t, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	skipped := filepath.Join(dir, "skipped")
	env := []string{"PATH=" + dir, "SKIPPED=" + skipped, "SKIP_OPENAPI_LINT="}
	out, err := execute(t, "..", env, filepath.Join(dir, "bash"), "scripts/openapi.sh")
	if err == nil || !strings.Contains(out, "Install nodejs and npm") {
		t.Errorf("without npm: %v\n%s", err, out)
	}
	if _, err := os.Stat(skipped); err == nil {
		t.Error("a failed check is listed as skipped")
	}
	out = mustExecute(t, "..", append(env, "SKIP_OPENAPI_LINT=1"), filepath.Join(dir, "bash"), "scripts/openapi.sh")
	if !strings.Contains(out, "SKIPPED") || !strings.Contains(mustRead(t, skipped), "openapi-lint") {
		t.Errorf("skipped: %s", out)
	}
}

func TestVagrantfile(t *testing.T) {
	vagrant := mustTool(t, "vagrant")
	// The Vagrantfile creates a directory beside itself.
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

// TestAlertsNameMetrics checks that alerts use only metrics that exist in the
// source.
func TestAlertsNameMetrics(t *testing.T) {
	source := allSource(t)
	rules := mustRead(t, "prometheus/berth.rules.yml")
	// Names of recording rules have a colon; series of a histogram have a
	// suffix.
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

// allSource returns the text of all Go files except tests.
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
	// The program is not installed here, and verify requires that it exists.
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
		"OOMScoreAdjust=-900", "EnvironmentFile=-/etc/berth/environment",
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

// TestExampleNamesEverySetting checks that the example shows exactly the
// existing settings, commented out or not.
func TestExampleNamesEverySetting(t *testing.T) {
	// A setting that is commented out is indented after the sign, by two spaces
	// for each level.
	text := regexp.MustCompile(`(?m)^( *)# ([a-z0-9_]+:|  |- )`).ReplaceAllString(mustRead(t, "berth.yaml"), "$1$2")
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
		setting := regexp.MustCompile(`^( *)([a-z0-9_]+):`).FindStringSubmatch(line)
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
	want := []string{"executor.mounts"} // Has no flag and no variable.
	for _, key := range config.Keys() {
		want = append(want, key.Path)
	}
	for _, key := range want {
		if !named[key] {
			t.Errorf("it does not name %s", key)
		}
	}
}
