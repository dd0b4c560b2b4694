package node_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"berth/node/nodetest"
)

// chunksOf returns the files of blobs of at least a size below the data of a server.
func chunksOf(t *testing.T, dataDir string, least int64) (paths []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dataDir, "blobs", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.Size() >= least && len(filepath.Base(path)) == 64 {
			paths = append(paths, path)
		}
	}
	return paths
}

// damage flips a bit in every chunk of one server, and then loses all chunks of another.
// Reads return what was stored, and damaged chunks are replaced.
func (c *storageCluster) damage(t *testing.T) {
	before := chunksOf(t, c.Nodes[0].Config.DataDir, 0)
	data := append([]byte("unlike other files"), noise(17<<20)...)
	c.mustStore(c.Follower(), "big", data)
	read := func(what string) {
		t.Helper()
		for _, n := range c.Nodes {
			var out bytes.Buffer
			if _, err := c.at(n).Download(t.Context(), "big", "", 0, &out); err != nil || !bytes.Equal(out.Bytes(), data) {
				t.Errorf("%s: from %s %d bytes came, %v", what, n.Config.Name, out.Len(), err)
			}
		}
	}
	var flipped []string
	for _, path := range chunksOf(t, c.Nodes[0].Config.DataDir, 1<<20) {
		blob, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(before, path) {
			continue
		}
		blob[len(blob)/2] ^= 4
		if err := os.WriteFile(path, blob, 0o600); err != nil {
			t.Fatal(err)
		}
		flipped = append(flipped, path)
	}
	read("after bits have flipped")
	for _, path := range flipped {
		blob, err := os.ReadFile(path)
		if sum := sha256.Sum256(blob); err != nil || hex.EncodeToString(sum[:]) != filepath.Base(path) {
			t.Errorf("%s is not replaced: %v", path, err)
		}
	}
	for _, path := range chunksOf(t, c.Nodes[1].Config.DataDir, 0) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	read("after a server has lost its chunks")
}

// TestFullDiskOfOneReplica stores files while the disk of one of three servers is full:
// the other two take them.
func TestFullDiskOfOneReplica(t *testing.T) {
	t.Parallel() // It mostly waits.
	var dir string
	c := nodetest.NewWith(t, 3, func(i int, cfg *nodetest.NodeConfig) {
		if i == 2 {
			dir = nodetest.MustDisk(t, diskBytes)
			cfg.DataDir = filepath.Join(dir, "data")
		}
	})
	key := c.MustAccount("acme").Key
	free := nodetest.MustFill(t, dir)
	defer free()
	data := noise(9 << 20)
	for _, n := range c.Nodes {
		api := nodetest.MustClient(t, key, n.URL())
		if _, err := api.Upload(t.Context(), bytesOf(n.Config.Name, data)); err != nil {
			t.Errorf("through %s: %v", n.Config.Name, err)
			continue
		}
		var out bytes.Buffer
		if _, err := api.Download(t.Context(), n.Config.Name, "", 0, &out); err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Errorf("from %s %d bytes came, %v", n.Config.Name, out.Len(), err)
		}
	}
}

// stalled is a body of which only a part comes until it is released.
type stalled struct {
	io.Reader
	wait <-chan struct{}
	came chan<- struct{}
	over bool
}

func (s *stalled) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF && !s.over {
		s.over = true
		close(s.came)
		<-s.wait
	}
	return n, err
}

// TestKilledInAnUpload kills the node that receives a file. Nothing of the file is
// stored; a client that knows more nodes sends it to another one; and the node serves
// again.
func TestKilledInAnUpload(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.Start(t, 3)
	key := c.MustAccount("acme").Key
	victim, other := c.Nodes[2], nodetest.MustClient(t, key, c.Nodes[0].URL)
	data := noise(12 << 20)
	release, came := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	form := []byte(formHead + string(data[:9<<20]))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, victim.URL+"/api/v2/external/storage/upload?key=half",
		&stalled{Reader: bytes.NewReader(form), wait: release, came: came})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "multipart/form-data; boundary=form")
	answered := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	<-came
	nodetest.Eventually(t, time.Minute, "chunks to be there", func() bool {
		n := 0
		for _, node := range c.Nodes {
			n += len(chunksOf(t, node.Config.DataDir, 1<<20))
		}
		return n >= 2
	})
	victim.Kill()
	close(release)
	if err := <-answered; err == nil {
		t.Error("the upload was answered")
	}
	if files, _, err := other.Files(t.Context(), "", "", 0); err != nil || len(files) != 0 {
		t.Errorf("there are %d files, %v", len(files), err)
	}
	both := nodetest.MustClient(t, key, victim.URL, c.Nodes[0].URL)
	if _, err := both.Upload(t.Context(), bytesOf("whole", data)); err != nil {
		t.Errorf("sent to another node: %v", err)
	}
	victim.Start()
	again := nodetest.MustClient(t, key, victim.URL)
	nodetest.Eventually(t, time.Minute, "the node to serve again", func() bool { return again.Ready(t.Context()) == nil })
	var out bytes.Buffer
	if _, err := again.Download(t.Context(), "whole", "", 0, &out); err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%d bytes came, %v", out.Len(), err)
	}
	if _, err := again.Upload(t.Context(), bytesOf("half", data)); err != nil {
		t.Errorf("sent again: %v", err)
	}
}

// formHead begins a form with a file.
const formHead = "--form\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n"
