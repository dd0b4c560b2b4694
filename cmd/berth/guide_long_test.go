//go:build long

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/cmd/berth/clitest"
	"berth/cmd/berth/dev"
	"berth/node/executor/packages/wheeltest"
)

// guidePatience is how long one command of the guide may take on a slow machine.
const guidePatience = 3 * time.Minute

// reader executes the commands of the guide, as a reader on the cluster's machine.
type reader struct {
	*testing.T

	program string
	dir     string // Directory of the reader's files.
	env     []string
}

// do executes a command line and returns what it prints.
func (r *reader) do(line string) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), guidePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env = r.dir, r.env
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		r.Errorf("%s: %v\n%s%s", line, err, out, words.String())
	}
	return string(out)
}

// newest returns the execution that was submitted last.
func (r *reader) newest() string {
	r.Helper()
	var list []struct {
		ID string `json:"execution_id"`
	}
	if err := json.Unmarshal([]byte(r.do("berth ps -a --json")), &list); err != nil || len(list) == 0 {
		r.Fatalf("no execution is listed: %v", err)
	}
	return list[0].ID
}

// TestGuide executes every command of the guide on a real cluster, one after the
// other.
func TestGuide(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as executions are put into sandboxes")
	}
	base := t.TempDir()
	dir, wheels, data := filepath.Join(base, "lab"), filepath.Join(base, "wheels"), filepath.Join(base, "data")
	for name, text := range map[string]string{
		"lab/train.py":            "import os, sys\nos.makedirs('outputs', exist_ok=True)\nopen('outputs/model', 'w').write('model')\nprint('trained', sys.argv[1:])\n",
		"lab/package/__init__.py": "", "lab/package/train.py": "print('module')\n",
		"lab/run.sh": "#!/bin/sh\nls \"$1\"\n", "lab/data/set": "set", "lab/data.csv": "1,2\n", "lab/requirements.txt": "labtool==3.1\n",
		"lab/token.txt": "hf_secret\n", "lab/password.txt": "correct horse battery\n", "data/rows": "rows", "wheels/README": "",
	} {
		name = filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(data, 0o777); err != nil {
		t.Fatal(err)
	}
	wheeltest.Wheel{Name: "labtool", Version: "3.1", Code: "value = 3\n"}.Write(t, wheels)
	r := &reader{T: t, program: clitest.MustBuild(t, base), dir: dir}
	r.env = append(os.Environ(), "PATH="+base+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+filepath.Join(base, "config"),
		"BERTH_ADDR=", "BERTH_TOKEN=", "BERTH_CONTEXT=", "BERTH_ORG=")
	cluster := filepath.Join(base, "cluster")
	t.Cleanup(func() {
		down := exec.Command(r.program, "dev", "down", "--dir", cluster)
		down.Env = r.env
		if out, err := down.CombinedOutput(); err != nil {
			t.Errorf("dev down: %v\n%s", err, out)
		}
	})
	r.do("berth dev --detach --dir " + cluster + " --gpus 'n1=a100:1,h100:1;n2=a40:1' --nodes 3 --set python.offline=true " +
		"--set 'python.find_links=[" + wheels + "]' --set executor.scratch_mib=1024 --set limits.timeout_default=2m " +
		"--set 'executor.mounts=[{name: datasets, path: " + data + "}, {name: checkpoints, path: " + data + "}]'")
	state, err := dev.ReadState(cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "root_token"), []byte(state.RootToken), 0o600); err != nil {
		t.Fatal(err)
	}
	r.follow(state)
}

// follow executes the commands of the guide.
func (r *reader) follow(state dev.State) {
	r.Helper()
	trained := ""
	for _, line := range mustGuide(r.T, false) {
		switch {
		case strings.Contains(line, "user create"), strings.HasPrefix(line, "berth login"):
			line += " --password-file password.txt" // A terminal would ask.
		case strings.Contains(line, "--scratch 200g"):
			line = strings.Replace(line, "200g", "1g", 1) // This machine may have less.
		}
		line = strings.ReplaceAll(line, "http://FIRST:6470", state.Nodes[0].API)
		if strings.Contains(line, " ID") {
			id := trained // The only ones that leave something.
			if !strings.Contains(line, "outputs") {
				id = r.newest()
			}
			line = strings.ReplaceAll(line, " ID", " "+id)
		}
		out := r.do(line)
		if strings.HasPrefix(line, "berth run") && strings.Contains(out, "trained") {
			trained = r.newest()
		}
		for command, want := range map[string]string{
			"whoami": "bea@example.org", "train.py -- --lr": "trained ['--lr', '0.1']", "-m package.train": "module",
			"run.sh": "set", "secret ls": "HF_TOKEN", "outputs get": "results/model", "env ls": "torch24",
			"--environment": "trained", "--mount-storage": "1,2",
		} {
			if strings.Contains(line, command) && !strings.Contains(out, want) {
				r.Errorf("%s: it prints %q, without %q", line, out, want)
			}
		}
	}
}
