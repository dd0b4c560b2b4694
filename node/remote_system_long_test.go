//go:build long

package node_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
	"berth/node/objects/remote/storetest"
)

// storeOf is the object store of a cluster whose files move there and back.
type storeOf struct {
	*storageCluster
	server *storetest.Store
}

// eachStore executes a test with every kind of object store that this program can open.
func eachStore(t *testing.T, test func(*testing.T, storetest.Kind)) {
	for _, kind := range storetest.Kinds() {
		t.Run(kind.Scheme, func(t *testing.T) { test(t, kind) })
	}
}

// TestFilesMoveToAnObjectStore moves the files of a cluster to an object store and back,
// while they are read and stored through every node.
func TestFilesMoveToAnObjectStore(t *testing.T) { eachStore(t, filesMove) }

func filesMove(t *testing.T, kind storetest.Kind) {
	c := nodetest.New(t, 3)
	s := &storeOf{&storageCluster{c, t, c.MustAccount("acme").Key, c.MustAccount("umbrella").Key}, kind.Start(t)}
	old, added := noise(9<<20), append(noise(5<<20), 'x')
	s.mustStore(s.Follower(), "old", old)

	s.restart(s.server.URL, "")
	s.mustHave("old", old)
	s.mustStore(s.Follower(), "new", added)
	s.mustHave("new", added)
	if s.server.Count(t, "blobs") == 0 || s.server.Count(t, "trash") != 0 {
		t.Error("the store has no chunk of a new file")
	}
	if m := s.migrate(); m.Blobs < 5 || m.Done != m.Blobs || m.Bytes < 5<<20 { // The first chunk of both is the same.
		t.Errorf("moved: %+v", m)
	}
	if m := s.migrate(); m.Bytes != 0 || m.Done != m.Blobs {
		t.Errorf("moved again: %+v", m)
	}
	for _, n := range s.Servers() {
		n.Peer().SweepBlobs(t.Context(), -time.Hour)
		if left := chunksOf(t, n.Config.DataDir, 1<<20); len(left) > 0 {
			t.Errorf("%s keeps %d chunks", n.Config.Name, len(left))
		}
	}
	s.mustHave("old", old)
	if err := s.at(s.Follower()).DeleteFile(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // Into the trash, and out of it.
		if _, _, err := s.Leader().Peer().SweepObjectStore(t.Context(), -time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if left := s.server.Count(t, "blobs"); left != 3 || s.server.Count(t, "trash") != 0 { // Two chunks and a manifest.
		t.Errorf("left are %d blobs", left)
	}
	s.mustHave("new", added)

	s.restart("", s.server.URL)
	s.mustHave("new", added)
	if m := s.migrate(); m.Done != m.Blobs || m.Bytes < int64(len(added)) {
		t.Errorf("moved back: %+v", m)
	}
	s.restart("", "")
	s.server.Stop()
	s.mustHave("new", added)
}

// restart restarts all servers with new places for files.
func (s *storeOf) restart(to, from string) {
	for _, n := range s.Nodes {
		n.Stop()
		n.Config.Storage.Objects, n.Config.Storage.ObjectsFrom = to, from
	}
	for _, n := range s.Nodes {
		n.Start()
	}
	s.WaitReady()
}

// mustHave reads a file through every node.
func (s *storeOf) mustHave(key string, want []byte) {
	s.t.Helper()
	for _, n := range s.Nodes {
		var out bytes.Buffer
		if _, err := s.at(n).Download(s.t.Context(), key, "", 0, &out); err != nil || !bytes.Equal(out.Bytes(), want) {
			s.t.Fatalf("%s of %s: %d bytes, %v", key, n.Config.Name, out.Len(), err)
		}
	}
}

// migrate moves all files to where new ones go.
func (s *storeOf) migrate() (m wire.StorageMigration) {
	s.t.Helper()
	root := nodetest.MustClient(s.t, s.RootToken, s.Follower().URL())
	if _, err := root.Migrate(s.t.Context(), true); err != nil {
		s.t.Fatal(err)
	}
	nodetest.Eventually(s.t, time.Minute, "the files to be moved", func() bool {
		var err error
		m, err = root.Migrate(s.t.Context(), false)
		return err == nil && m.Status != "running"
	})
	if m.Status != "done" || m.Failed != 0 || m.Error != nil {
		s.t.Fatalf("it ended as %+v", m)
	}
	foreign := s.at(s.Follower())
	if _, err := foreign.Migrate(s.t.Context(), true); statusOf(err) != 403 {
		s.t.Errorf("a user moves files: %v", err)
	}
	return m
}

// TestBlobsOutliveAllDisks removes the blobs of every server. The code, metrics and archives
// of executions come back from their copies in the object store.
func TestBlobsOutliveAllDisks(t *testing.T) { eachStore(t, blobsOutliveAllDisks) }

func blobsOutliveAllDisks(t *testing.T, kind storetest.Kind) {
	c := nodetest.New(t, 3)
	for _, n := range c.Nodes {
		n.Config.Retention.Count = 1
	}
	s := &storeOf{&storageCluster{c, t, c.MustAccount("acme").Key, ""}, kind.Start(t)}
	s.restart(s.server.URL, "")
	api := s.at(s.Follower())
	var ids []compute.ExecutionID
	var codes []string // Too large for the state, also compressed.
	for i := range 3 {
		codes = append(codes, "import time\ntime.sleep(2)\n# "+base64.StdEncoding.EncodeToString(noise(32<<10+i)))
		started, err := api.Submit(t.Context(), client.Start{Code: codes[i], ExecutionType: "a100", Timeout: 60})
		if err != nil {
			t.Fatal(err)
		}
		mustFinish(t, api, started.ExecutionID)
		ids = append(ids, started.ExecutionID)
	}
	root := nodetest.MustClient(t, c.RootToken, s.Follower().URL())
	nodetest.Eventually(t, time.Minute, "executions to be archived", func() bool {
		state, err := root.State(t.Context(), false)
		return err == nil && state.Archived == 2
	})
	if _, err := s.Leader().Peer().MirrorBlobs(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := s.server.Count(t, "mirror"); n < 5 { // The code and metrics of each, and at least one archive.
		t.Fatalf("the store has %d copies", n)
	}

	for _, n := range s.Nodes {
		n.Stop()
		if err := os.RemoveAll(filepath.Join(n.Config.DataDir, "blobs")); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range s.Nodes {
		n.Start()
	}
	s.WaitReady()
	api = s.at(s.Follower())
	for i, id := range ids {
		e, err := api.Execution(t.Context(), id, 0)
		if err != nil || e.Code != codes[i] {
			t.Errorf("execution %d has %d bytes of code, %v", i, len(e.Code), err)
		}
	}
	m, err := api.Metrics(t.Context(), ids[2], client.MetricsQuery{Step: time.Second})
	if err != nil || len(m.GPUUtilization) == 0 {
		t.Errorf("%d points of metrics, %v", len(m.GPUUtilization), err)
	}
	for _, n := range s.Nodes {
		nodetest.Eventually(t, time.Minute, n.Config.Name+" to have the archives again", func() bool {
			for row := range n.Peer().View().Archives() {
				name := hex.EncodeToString(row.Blob[:])
				if _, err := os.Stat(filepath.Join(n.Config.DataDir, "blobs", name[:2], name)); err != nil {
					return false
				}
			}
			return true
		})
	}
}
