package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/audit"
	"berth/node/statetest"
)

// exported is a state and the files to which its trails are exported.
type exported struct {
	*statetest.State
	t    *testing.T
	cfg  audit.Config
	from int // Bytes of the file that read has seen.
}

// mib is the bytes of a MiB.
const mib = 1 << 20

func newExported(t *testing.T) *exported {
	dir := t.TempDir()
	s := statetest.New(t)
	s.Must(command.RegisterNode{Node: compute.Node{ID: s.Node, Name: "n1", Format: format.Newest}})
	s.Must(command.SetFormat{Term: 1, Format: format.Newest})
	s.Must(command.Grant{Actor: command.Actor{Root: true}, Org: s.Actor.Org, Amount: 1})
	s.Must(command.SetBillingMode{Actor: command.Actor{Root: true}, Meter: true})
	return &exported{State: s, t: t, cfg: audit.Config{
		File: filepath.Join(dir, "audit.jsonl"), Position: filepath.Join(dir, "audit.json"), View: s.Machine.View,
		Line: func(_ *fsm.View, line *compute.AuditRecord) wire.AuditLine {
			return wire.AuditLine{Seq: line.Seq, Action: line.Action, Index: line.Index}
		},
		Free:   func(string) (int64, int64, error) { return 1 << 40, mib, nil },
		Logger: slog.New(slog.DiscardHandler),
	}}
}

// open returns an export as a process makes it that has just started.
func (s *exported) open() *audit.Export {
	s.t.Helper()
	s.cfg.Registerer = prometheus.NewRegistry()
	e, err := audit.Open(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// grant adds n lines to the organization's trail.
func (s *exported) grant(n int) {
	for range n {
		s.Must(command.Grant{Actor: command.Actor{Root: true}, Org: s.Actor.Org, Amount: 1})
	}
}

// line is any line of the file.
type line struct {
	Org    *compute.OrgID `json:"org"`
	Seq    uint64         `json:"seq"`
	Action string         `json:"action"`
	Gap    bool           `json:"gap"`
	Before uint64         `json:"before"`
}

// read has lines exported, and returns those of the organization that are new in the file.
func (s *exported) read(e *audit.Export) (lines []line) {
	s.t.Helper()
	if err := e.Round(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	data, err := os.ReadFile(s.cfg.File)
	if err != nil {
		s.t.Fatal(err)
	}
	for text := range bytes.Lines(data[s.from:]) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			s.t.Fatalf("%q: %v", text, err)
		}
		if l.Org != nil && *l.Org == s.Actor.Org {
			lines = append(lines, l)
		}
	}
	s.from = len(data)
	return lines
}

// want fails unless lines are those from a number on, n in all.
func (s *exported) want(lines []line, from, n int) {
	s.t.Helper()
	if len(lines) != n {
		s.t.Fatalf("%d lines, want %d: %+v", len(lines), n, lines[:min(len(lines), 5)])
	}
	for i, l := range lines {
		if l.Gap || l.Seq != uint64(from+i) || l.Action == "" {
			s.t.Fatalf("line %d is %+v, want number %d", i, l, from+i)
		}
	}
}

// TestExport exports each line once, in order, and goes on where an earlier process ended.
func TestExport(t *testing.T) {
	s := newExported(t)
	e := s.open()
	s.want(s.read(e), 1, 1) // The first grant.
	s.want(s.read(e), 2, 0)
	s.grant(3)
	s.want(s.read(e), 2, 3)
	s.grant(2)
	e = s.open()
	s.want(s.read(e), 5, 2)
	if data, err := os.ReadFile(s.cfg.File); err != nil || !bytes.Contains(data, []byte(`"org":null`)) {
		t.Errorf("the cluster's trail is not in the file: %v", err)
	}

	if err := os.Rename(s.cfg.File, s.cfg.File+".1"); err != nil { // As logrotate does.
		t.Fatal(err)
	}
	s.grant(1)
	s.from = 0
	s.want(s.read(e), 7, 1)
}

// TestExportAfterAGap names the lines that left the state before they were exported.
func TestExportAfterAGap(t *testing.T) {
	const kept = 10_000
	s := newExported(t)
	s.grant(kept + 4)
	e := s.open()
	lines := s.read(e)
	if l := lines[0]; !l.Gap || l.Before != 6 {
		t.Fatalf("at first the first line is %+v", l)
	}
	s.want(lines[1:], 6, kept)
	s.grant(kept)
	s.want(s.read(e), kept+6, kept)
	s.grant(kept + 5)
	lines = s.read(e)
	if l := lines[0]; !l.Gap || l.Before != 2*kept+11 {
		t.Fatalf("behind the lines of a process the first one is %+v", l)
	}
	s.want(lines[1:], 2*kept+11, kept)
	s.grant(kept + 1)
	if lines = s.read(s.open()); !lines[0].Gap || lines[0].Before != 3*kept+12 {
		t.Fatalf("after a restart the first line is %+v", lines[0])
	}
}

// TestExportNamesGapsBetweenLines exports a trail of which routine lines between others have
// left the state, and lines behind one that left it after it was exported.
func TestExportNamesGapsBetweenLines(t *testing.T) {
	const kept, more = 5_000, 10
	s := newExported(t)
	logins := 0
	login := func(n int) {
		for range n {
			logins++
			s.Must(command.StoreRefresh{Token: compute.RefreshToken{
				Hash: sha256.Sum256(fmt.Append(nil, logins)), Family: compute.UUID{1}, User: s.Actor.User, ExpiresAt: 1 << 60,
			}})
		}
	}
	login(more + 1)
	s.grant(1)
	login(kept - 1)
	e := s.open()
	lines := s.read(e)
	if len(lines) != 1+1+1+kept {
		t.Fatalf("there are %d lines", len(lines))
	}
	s.want(lines[:1], 1, 1)
	if gap := lines[1]; !gap.Gap || gap.Before != more+2 {
		t.Errorf("the gap is %+v", gap)
	}
	s.want(lines[2:], more+2, kept+1)
	login(kept - 1)
	s.read(e)
	login(kept) // All routine lines until then are gone.
	s.want(s.read(e), more+2+2*kept, kept)
}

// TestExportOfARestoredCluster exports again what a restored cluster has, whose indexes are
// lower.
func TestExportOfARestoredCluster(t *testing.T) {
	s := newExported(t)
	s.grant(20)
	e := s.open()
	s.want(s.read(e), 1, 21)
	restored := &exported{State: statetest.New(t), t: t, cfg: s.cfg, from: s.from}
	restored.Must(command.RegisterNode{Node: compute.Node{ID: restored.Node, Name: "n1", Format: format.Newest}})
	restored.Must(command.SetFormat{Term: 1, Format: format.Newest})
	restored.Must(command.RaiseEpoch{Term: 1, Epoch: 1, Cause: command.CauseRestored})
	restored.grant(2)
	if restored.Machine.View().Index() >= s.Machine.View().Index() {
		t.Fatal("the restored state is not older")
	}
	restored.cfg.View = restored.Machine.View
	restored.want(restored.read(restored.open()), 1, 2)
}

// TestExportOfBadFiles refuses what cannot be appended to, ends a line that a crash has
// left half written, and exports all again if it is not known what was.
func TestExportOfBadFiles(t *testing.T) {
	s := newExported(t)
	for _, path := range []string{filepath.Join(t.TempDir(), "none", "audit.jsonl"), "/dev/null", t.TempDir()} {
		bad := *s
		bad.cfg.File = path
		if err := bad.open().Round(t.Context()); err == nil {
			t.Errorf("%s is written", path)
		}
	}
	e := s.open()
	s.want(s.read(e), 1, 1)
	f, err := os.OpenFile(s.cfg.File, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	half, err := f.WriteString(`{"org":`)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.grant(1)
	s.from += half + 1
	s.want(s.read(e), 2, 1)
	if err := os.WriteFile(s.cfg.Position, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(s.read(s.open()), 1, 2)
}

// TestFailedExport exports lines once when the disk has no space for them, and when the
// position cannot be saved.
func TestFailedExport(t *testing.T) {
	s := newExported(t)
	e := s.open()
	s.want(s.read(e), 1, 1)
	s.grant(2)
	moved := s.cfg.File + ".moved"
	for from, to := range map[string]string{s.cfg.File: moved, s.cfg.Position: s.cfg.Position + ".moved"} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/full", s.cfg.File); err != nil {
		t.Fatal(err)
	}
	if err := e.Round(t.Context()); err == nil {
		t.Error("a file that is not written is no error")
	}
	if err := os.Rename(moved, s.cfg.File); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.cfg.Position, 0o700); err != nil { // It cannot be replaced by a file.
		t.Fatal(err)
	}
	for range 3 {
		if err := e.Round(t.Context()); err == nil {
			t.Fatal("a position that cannot be saved is no error")
		}
	}
	if err := os.Remove(s.cfg.Position); err != nil {
		t.Fatal(err)
	}
	s.want(s.read(e), 2, 2)
	s.want(s.read(s.open()), 4, 0)
}

// TestSpaceStaysFree checks that an export leaves the margin free, also with the bytes that it
// writes, and that no line is lost meanwhile.
func TestSpaceStaysFree(t *testing.T) {
	s := newExported(t)
	free := int64(2 * mib)
	s.cfg.Free = func(name string) (int64, int64, error) {
		if _, err := os.Stat(name); name != s.cfg.File || err != nil {
			t.Errorf("asked about %s: %v", name, err)
		}
		return free, mib, nil
	}
	e := s.open()
	s.read(e)
	before, err := os.ReadFile(s.cfg.File)
	if err != nil {
		t.Fatal(err)
	}
	for _, free = range []int64{0, mib - 1, mib, mib + 10} {
		s.grant(1)
		if err := e.Round(t.Context()); compute.CodeOf(err) != compute.CodeNoSpace {
			t.Errorf("with %d bytes free: %v", free, err)
		}
		if now, err := os.ReadFile(s.cfg.File); err != nil || !bytes.Equal(now, before) {
			t.Errorf("with %d bytes free the file has %d bytes, before %d: %v", free, len(now), len(before), err)
		}
	}
	free = 2 * mib
	if lines := s.read(e); len(lines) != 4 {
		t.Errorf("%d lines were exported later, want 4", len(lines))
	}
}
