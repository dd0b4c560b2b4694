package node_test

import (
	"bytes"
	"crypto/md5" //nolint:gosec // ETags are MD5 sums.
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// bytesOf is a file in memory.
func bytesOf(key string, data []byte) client.NewFile {
	return client.NewFile{Key: key, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

// storageCluster is three servers and a worker, with the clients of two organizations.
type storageCluster struct {
	*nodetest.Cluster
	t          *testing.T
	key, other string
}

func newStorageCluster(t *testing.T) *storageCluster {
	c := nodetest.NewWith(t, 4, func(i int, cfg *nodetest.NodeConfig) {
		cfg.S3.Addr = "127.0.0.1:0"
		if i == 3 {
			cfg.Role, cfg.GPUs.Simulated = nodetest.Worker, []string{"b200:1"}
		}
	})
	return &storageCluster{c, t, c.MustAccount("acme").Key, c.MustAccount("umbrella").Key}
}

func (c *storageCluster) at(n *nodetest.Node) *client.Client {
	return nodetest.MustClient(c.t, c.key, n.URL())
}

// mustStore stores a file through a node.
func (c *storageCluster) mustStore(n *nodetest.Node, key string, data []byte) wire.UploadedFile {
	c.t.Helper()
	out, err := c.at(n).Upload(c.t.Context(), bytesOf(key, data))
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// TestStorage stores files through every kind of node, with the API and with S3, damages
// them, and collects what was deleted.
func TestStorage(t *testing.T) {
	c := newStorageCluster(t)
	t.Run("files", c.files)
	t.Run("S3", func(t *testing.T) { c.s3(t, mustS3(t, c.Follower(), c.key)) })
	t.Run("S3 on the API", c.s3OnAPI)
	t.Run("bad S3", c.badS3)
	t.Run("imports", c.imports)
	t.Run("outputs", c.copiedOutputs)
	t.Run("mounts", c.mounts)
	t.Run("damage", c.damage)
	t.Run("collection", c.collection)
	t.Run("join", c.join)
}

// files stores files through every kind of node, reads each back from every node, and
// deletes them.
func (c *storageCluster) files(t *testing.T) {
	big := noise(9 << 20)
	follower, worker, leader := c.Follower(), c.Nodes[3], c.Leader()
	for name, n := range map[string]*nodetest.Node{"follower": follower, "worker": worker, "leader": leader} {
		for size, data := range map[string][]byte{"big": big, "small": []byte("small"), "empty": nil} {
			out := c.mustStore(n, "data/"+name+"/"+size, data)
			sum := md5.Sum(data) //nolint:gosec // As above.
			if out.ETag != hex.EncodeToString(sum[:]) || out.Size != int64(len(data)) {
				t.Errorf("stored through the %s: %+v", name, out)
			}
		}
	}
	for _, n := range c.Nodes {
		files, next, err := c.at(n).Files(t.Context(), "data/", "", 0)
		if err != nil || len(files) != 9 || next != "" {
			t.Fatalf("%s lists %d files, %q, %v", n.Config.Name, len(files), next, err)
		}
		for _, f := range files {
			var out bytes.Buffer
			if _, err := c.at(n).Download(t.Context(), f.Key, f.ETag, 0, &out); err != nil || int64(out.Len()) != f.Size ||
				f.Size > 5 && !bytes.Equal(out.Bytes(), big) {
				t.Errorf("%s of %s: %d bytes, %v", f.Key, n.Config.Name, out.Len(), err)
			}
		}
		var out bytes.Buffer
		if _, err := c.at(n).Download(t.Context(), "data/worker/big", "", 5<<20, &out); err != nil || !bytes.Equal(out.Bytes(), big[5<<20:]) {
			t.Errorf("the end of a file of %s: %d bytes, %v", n.Config.Name, out.Len(), err)
		}
	}
	t.Run("pages", c.pages)
	t.Run("foreign", c.foreign)
	t.Run("bulk", c.bulk)
	t.Run("blobs", func(t *testing.T) { c.encrypted(t, big) })
	c.mustStore(leader, "marker/", nil)
	c.mustStore(leader, "folder/", nil)
	if err := c.at(follower).DeleteFile(t.Context(), "marker/"); err != nil {
		t.Errorf("the marker of a folder: %v", err)
	}
	if n, err := c.at(follower).DeleteFolder(t.Context(), "folder"); n != 1 || err != nil {
		t.Errorf("a folder of its marker: %d deleted, %v", n, err)
	}
	c.conditions(t, follower, worker)
	if n, err := c.at(worker).DeleteFolder(t.Context(), "data/leader"); err != nil || n != 3 {
		t.Errorf("%d deleted, %v", n, err)
	}
	if err := c.at(follower).DeleteFile(t.Context(), "data/worker/big"); err != nil {
		t.Error(err)
	}
	if err := c.at(follower).DeleteFile(t.Context(), "data/worker/big"); statusOf(err) != http.StatusNotFound {
		t.Errorf("deleted twice: %v", err)
	}
}

// conditions asks nodes to delete a file under conditions that do not hold.
func (c *storageCluster) conditions(t *testing.T, nodes ...*nodetest.Node) {
	for _, n := range nodes {
		for _, header := range []string{`If-Match: ""`, `If-Match: "x", W/"y"`, "If-None-Match: *"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, n.URL()+"/api/v2/external/storage/delete/data/leader/small", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			name, value, _ := strings.Cut(header, ": ")
			req.Header.Set("Authorization", "Bearer "+c.key)
			req.Header.Set(name, value)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusPreconditionFailed {
				t.Errorf("%s answers a delete with %s: %d, %v", n.Config.Name, header, resp.StatusCode, err)
			}
		}
	}
}

// imports starts code through a follower with a stored file beside it.
func (c *storageCluster) imports(t *testing.T) {
	data := noise(100_000)
	c.mustStore(c.Leader(), "in/data.bin", data)
	api := c.at(c.Follower())
	sum := sha256.Sum256(data)
	started, err := api.Submit(t.Context(), client.Start{
		Code:          "import hashlib\nprint(hashlib.sha256(open('in/d.bin', 'rb').read()).hexdigest())",
		ImportFiles:   `{"in/d.bin":"storage://in/data.bin"}`,
		ExecutionType: "cpu", Timeout: 60,
	})
	if err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCompleted || strings.TrimSpace(e.Stdout) != hex.EncodeToString(sum[:]) {
		t.Errorf("it ended as %s %v with %q %q", e.Status, e.Errors, e.Stdout, e.Stderr)
	}
}

// pages reads a list in pages.
func (c *storageCluster) pages(t *testing.T) {
	var keys []string
	for cursor := ""; ; {
		files, next, err := c.at(c.Follower()).Files(t.Context(), "data/", cursor, 2)
		if err != nil || len(files) > 2 {
			t.Fatalf("a page has %d files, %v", len(files), err)
		}
		for _, f := range files {
			keys = append(keys, f.Key)
		}
		if cursor = next; next == "" {
			break
		}
	}
	if len(keys) != 9 || !slices.IsSorted(keys) {
		t.Errorf("the pages have %q", keys)
	}
}

// foreign has another organization ask for files: none of them exists.
func (c *storageCluster) foreign(t *testing.T) {
	other := nodetest.MustClient(t, c.other, c.Follower().URL())
	files, _, err := other.Files(t.Context(), "", "", 0)
	if err != nil || len(files) != 0 {
		t.Errorf("another organization sees %d files, %v", len(files), err)
	}
	_, err = other.Download(t.Context(), "data/leader/small", "", 0, io.Discard)
	_, copied := other.CopyFile(t.Context(), "data/leader/small", "mine")
	for what, err := range map[string]error{"read": err, "copied": copied, "deleted": other.DeleteFile(t.Context(), "data/leader/small")} {
		if statusOf(err) != http.StatusNotFound {
			t.Errorf("another organization's file %s: %v", what, err)
		}
	}
}

// bulk sends several files through the worker, of which one cannot be stored.
func (c *storageCluster) bulk(t *testing.T) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, name := range []string{"a.txt", "deep/b.txt", "../c.txt"} {
		part, err := form.CreateFormFile("files", name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(part, "content of %s", name)
	}
	if err := errors.Join(form.WriteField("folder_prefix", "/bulk/"), form.Close()); err != nil {
		t.Fatal(err)
	}
	var out wire.BulkUpload
	c.mustPost(t, c.Nodes[3], "/storage/upload-bulk", form.FormDataContentType(), &body, &out)
	if out.TotalFiles != 3 || out.SuccessfulUploads != 2 || out.FailedUploads != 1 || len(out.Results) != 3 ||
		out.Results[1].Key != "bulk/deep/b.txt" || out.Results[1].Status != "success" || out.Results[2].ErrorMessage == nil {
		t.Errorf("the answer is %+v", out)
	}
	var text strings.Builder
	if _, err := c.at(c.Follower()).Download(t.Context(), "bulk/deep/b.txt", "", 0, &text); err != nil || text.String() != "content of deep/b.txt" {
		t.Errorf("it is %q, %v", text.String(), err)
	}
}

// encrypted looks for the content of a file on the disks.
func (c *storageCluster) encrypted(t *testing.T, data []byte) {
	blobs := 0
	for _, n := range c.Servers() {
		err := filepath.WalkDir(filepath.Join(n.Config.DataDir, "blobs"), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			blobs++
			blob, err := os.ReadFile(path)
			if bytes.Contains(blob, data[1000:1064]) || bytes.Contains(blob, []byte("content of deep/b.txt")) {
				t.Errorf("%s has the content of a file", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if blobs == 0 {
		t.Error("there are no blobs")
	}
}

// collection holds that blobs of deleted files go, and no others.
func (c *storageCluster) collection(t *testing.T) {
	api := c.at(c.Follower())
	c.mustStore(c.Leader(), "stays", []byte("small"))
	files, _, err := api.Files(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Key == "stays" {
			continue
		}
		if err := api.DeleteFile(t.Context(), f.Key); err != nil {
			t.Fatal(err)
		}
	}
	large := func() (n int) {
		for _, s := range c.Servers() {
			n += len(chunksOf(t, s.Config.DataDir, 1<<20))
		}
		return n
	}
	if large() == 0 {
		t.Error("there were no chunks")
	}
	for _, n := range c.Servers() {
		n.Peer().SweepBlobs(t.Context(), -time.Hour)
	}
	if n := large(); n > 0 {
		t.Errorf("%d chunks of deleted files stay", n)
	}
	var out bytes.Buffer
	if _, err := c.at(c.Leader()).Download(t.Context(), "stays", "", 0, &out); err != nil || out.String() != "small" {
		t.Errorf("a file that stays is %q, %v", out.String(), err)
	}
}

// join has another server join. Its share of the blobs moves to it, until each has its two copies
// again, and every read of a follower on the way returns what was stored.
func (c *storageCluster) join(t *testing.T) {
	blobs := func() map[string]int { // With how many servers have each.
		copies := map[string]int{}
		for _, n := range c.Servers() {
			for _, path := range chunksOf(t, n.Config.DataDir, 0) {
				copies[filepath.Base(path)]++
			}
		}
		return copies
	}
	before := blobs() // Some were removed from a disk.
	stored := map[string][]byte{}
	for i := range 24 {
		key := fmt.Sprintf("join/%d", i)
		stored[key] = noise(10_000 + i)
		c.mustStore(c.Nodes[i%4], key, stored[key])
	}
	read := func() {
		for key, data := range stored {
			var out bytes.Buffer
			if _, err := c.at(c.Follower()).Download(t.Context(), key, "", 0, &out); err != nil || !bytes.Equal(out.Bytes(), data) {
				t.Errorf("%s has %d bytes, %v", key, out.Len(), err)
			}
		}
	}
	joined := c.Add()
	nodetest.Eventually(t, endWait, "the copies to move", func() bool {
		read()
		for _, n := range c.Servers() {
			n.Peer().SweepBlobs(t.Context(), -time.Hour)
		}
		copies := blobs()
		maps.DeleteFunc(copies, func(blob string, _ int) bool { return before[blob] > 0 })
		for _, n := range copies {
			if n < 2 {
				t.Errorf("a blob has %d copies", n)
			}
			if n != 2 {
				return false
			}
		}
		return len(copies) >= len(stored) && len(chunksOf(t, joined.Config.DataDir, 0)) > 0
	})
	read()
}

// mustPost sends a body to a node and decodes its answer.
func (c *storageCluster) mustPost(t *testing.T, n *nodetest.Node, path, media string, body io.Reader, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.URL()+"/api/v2/external"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", media)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(data, out)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("POST %s: %d, %v: %s", path, resp.StatusCode, err, data)
	}
}

// statusOf returns the status of a refusal.
func statusOf(err error) int {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return e.Status
	}
	return 0
}
