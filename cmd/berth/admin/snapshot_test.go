package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/cmd/berth/clitest"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// mustBackup returns a backup of a new cluster.
func mustBackup(t *testing.T) []byte {
	t.Helper()
	machine := fsm.New()
	frame, err := command.Encode(command.Bootstrap{
		ClusterID: compute.UUID{15: 1}, Prices: map[string]compute.Price{"cpu": 15},
		Signing: compute.SigningKey{ID: "first", Public: []byte{1}, Sealed: []byte{2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := machine.ApplyFrames(7, frame); r[0].Refusal != nil {
		t.Fatal(r[0].Refusal)
	}
	var data bytes.Buffer
	if err := machine.View().WriteBackup(&data, "0.1.0", 1_775_000_000_000); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

func TestSnapshotSaveAndVerify(t *testing.T) {
	data := mustBackup(t)
	sent := data
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/admin/raft/snapshot": func(w http.ResponseWriter, r *http.Request) { clitest.Answer(string(sent))(w, r) },
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "b")
	var saved savedBackup
	r := execute(t, "", "admin", "snapshot", "save", file, "--json")
	if err := json.Unmarshal([]byte(r.Out), &saved); err != nil || saved.Header.Index != 7 || saved.Bytes != int64(len(data)) {
		t.Fatalf("got %+v, %v", r, err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if r := execute(t, "", "admin", "snapshot", "save", "-"); r.Code != 0 || r.Out != string(data) {
		t.Errorf("to standard output came %d bytes, %q", len(r.Out), r.Errors)
	}
	if r := execute(t, "", "admin", "snapshot", "save", file); r.Code == 0 || !strings.Contains(r.Errors, "is there already") {
		t.Errorf("saved over it: %+v", r)
	}
	sent = data[:len(data)-9]
	r = execute(t, "", "admin", "snapshot", "save", filepath.Join(dir, "cut"))
	if r.Code == 0 || !strings.Contains(r.Errors, "save it again") {
		t.Errorf("a backup that was cut: %+v", r)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files are there, want the one that is whole", len(entries))
	}
	clitest.CheckGolden(t, "snapshot_verify", execute(t, "", "admin", "snapshot", "verify", file).Out)
	var b struct {
		State struct {
			Executions int `json:"executions"`
		} `json:"state"`
	}
	r = execute(t, "", "admin", "snapshot", "verify", file, "--json")
	if err := json.Unmarshal([]byte(r.Out), &b); err != nil || r.Code != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := os.WriteFile(file, sent, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, "", "admin", "snapshot", "verify", file); r.Code == 0 || !strings.Contains(r.Errors, "damaged") {
		t.Errorf("a damaged backup: %+v", r)
	}
}

// TestSkipNamesTheEntry checks that berth admin raft skip needs an index and a
// complete hash.
func TestSkipNamesTheEntry(t *testing.T) {
	dir := t.TempDir()
	hash := strings.Repeat("0a", 32)
	for args, want := range map[string]string{
		"":                                    "--entry is needed",
		"--entry 7 --yes":                     "--hash: name the SHA-256",
		"--entry 7 --hash abc --yes":          "--hash: \"abc\" is not a SHA-256",
		"--entry 7 --hash " + hash + "0b":     "is not a SHA-256",
		"--entry seven":                       "invalid",
		"--entry 7 --hash " + hash:            dir,
		"--entry 7 --hash " + hash + " --yes": dir,
	} {
		r := execute(t, "", append([]string{"admin", "raft", "skip", "--data-dir", dir}, strings.Fields(args)...)...)
		if r.Code == 0 || !strings.Contains(r.Errors, want) {
			t.Errorf("%s: got %+v", args, r)
		}
	}
}

// TestRecoverNamesWhoIsLeft checks that berth admin raft recover needs the
// surviving servers by name: no default makes a server continue alone.
func TestRecoverNamesWhoIsLeft(t *testing.T) {
	dir := t.TempDir()
	for args, want := range map[string]string{
		"--yes":                 "--voters: name the one or two servers to go on with",
		"--voters gpu-1 --yes":  "--voters",
		"--voters " + firstNode: dir,
	} {
		r := execute(t, "", append([]string{"admin", "raft", "recover", "--data-dir", dir}, strings.Fields(args)...)...)
		if r.Code == 0 || !strings.Contains(r.Errors, want) {
			t.Errorf("%s: got %+v", args, r)
		}
	}
}
