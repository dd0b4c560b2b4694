//go:build long

package node_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/client"
	"berth/loop"
	"berth/node/nodetest"
)

// Sizes of TestFilesUnderKills.
const (
	killOps     = 10_000
	killWriters = 16
	killKeys    = 40 // Keys of each writer.
)

// writer stores and deletes its own files, and knows what may be there.
type writer struct {
	t   *testing.T
	n   int
	api *client.Client
	rng *rand.Rand
	may map[string][]int // The versions that a file may have; 0 for none.
}

// contentOf returns the content of a version of a file, of any size up to 200 KiB.
func contentOf(key string, version int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%s version %d\n", key, version), 1+version*7919%10_000)
}

// step stores or deletes one file. A change that was not acknowledged may have happened.
func (w *writer) step(version int) (acknowledged bool) {
	key := fmt.Sprintf("writer-%d/%d", w.n, w.rng.IntN(killKeys))
	before := w.may[key]
	if len(before) == 0 {
		before = []int{0}
	}
	next := version
	var err error
	if w.rng.IntN(3) == 0 {
		next = 0
		if err = w.api.DeleteFile(w.t.Context(), key); statusOf(err) == http.StatusNotFound {
			err = nil // As good; an unacknowledged one may have done it.
		}
	} else {
		_, err = w.api.Upload(w.t.Context(), bytesOf(key, contentOf(key, version)))
	}
	if err != nil {
		w.may[key] = append(before, next)
		return false
	}
	w.may[key] = []int{next}
	return true
}

// check compares a file with what may be there.
func (w *writer) check(key string) {
	var out bytes.Buffer
	_, err := w.api.Download(w.t.Context(), key, "", 0, &out)
	for _, version := range w.may[key] {
		if version == 0 && statusOf(err) == http.StatusNotFound || version > 0 && err == nil && bytes.Equal(out.Bytes(), contentOf(key, version)) {
			return
		}
	}
	head, _, _ := strings.Cut(out.String(), "\n")
	w.t.Errorf("%s is %q of %d bytes, %v: it may have the versions %v", key, head, out.Len(), err, w.may[key])
}

// TestFilesUnderKills stores and deletes files while nodes are killed, one at a time.
// Nothing that was acknowledged is lost, and nothing that was deleted comes back.
func TestFilesUnderKills(t *testing.T) {
	c := nodetest.Start(t, 3)
	key := c.MustAccount("acme").Key
	urls := []string{c.Nodes[0].URL, c.Nodes[1].URL, c.Nodes[2].URL}
	var next, acknowledged atomic.Int64
	writers := make([]*writer, killWriters)
	var group sync.WaitGroup
	for n := range writers {
		w := &writer{
			t: t, n: n, api: nodetest.MustClient(t, key, append(urls[n%3:], urls[:n%3]...)...),
			rng: rand.New(rand.NewPCG(uint64(n), 1)), may: map[string][]int{},
		}
		writers[n] = w
		group.Go(func() {
			for version := next.Add(1); version <= killOps; version = next.Add(1) {
				if w.step(int(version)) {
					acknowledged.Add(1)
				}
			}
		})
	}
	kills := 0
	for next.Load() < killOps {
		victim := c.Nodes[kills%3]
		victim.Kill()
		kills++
		loop.Sleep(t.Context(), time.Second)
		victim.Start()
		api := nodetest.MustClient(t, key, victim.URL)
		nodetest.Eventually(t, time.Minute, "the node to serve again", func() bool { return api.Ready(t.Context()) == nil })
		loop.Sleep(t.Context(), 2*time.Second)
	}
	group.Wait()
	for _, w := range writers {
		for key := range w.may {
			w.check(key)
		}
	}
	checkNoLeaks(t, c, key)
	t.Logf("measured: %d of %d operations acknowledged over %d kills", acknowledged.Load(), killOps, kills)
	if acknowledged.Load() < killOps/2 || kills < 3 {
		t.Error("it was too quiet, or too little was acknowledged")
	}
}

// checkNoLeaks deletes all files and collects. No blob of them is left.
func checkNoLeaks(t *testing.T, processes *nodetest.Processes, key string) {
	t.Helper()
	c := processes.Inside()
	blobs := func() (n int) {
		for _, s := range c.Servers() {
			s.Peer().SweepBlobs(t.Context(), -time.Hour)
			n += len(chunksOf(t, s.Config.DataDir, 0))
		}
		return n
	}
	kept := blobs()
	api := nodetest.MustClient(t, key, c.Follower().URL())
	files, _, err := api.Files(t.Context(), "", "", 1000)
	if err != nil || kept < len(files) {
		t.Errorf("%d files have %d blobs, %v", len(files), kept, err)
	}
	for _, f := range files {
		if err := api.DeleteFile(t.Context(), f.Key); err != nil {
			t.Error(err)
		}
	}
	if left := blobs(); left > 0 {
		t.Errorf("%d of %d blobs stay without a file", left, kept)
	}
}

// stream returns the bytes of a large file, always the same ones.
func stream(size int64) io.ReadCloser {
	return io.NopCloser(io.LimitReader(rand.NewChaCha8([32]byte{2}), size))
}

// matching compares what is written with what it reads.
type matching struct {
	want io.Reader
	buf  []byte
	n    int64
}

func (m *matching) Write(p []byte) (int, error) {
	m.buf = slices.Grow(m.buf[:0], len(p))[:len(p)]
	if _, err := io.ReadFull(m.want, m.buf); err != nil {
		return 0, fmt.Errorf("beyond the file's end: %w", err)
	}
	if !bytes.Equal(p, m.buf) {
		return 0, fmt.Errorf("of the %d bytes behind the first %d, some are not the file's", len(p), m.n)
	}
	m.n += int64(len(p))
	return len(p), nil
}

// residentOf returns the memory of a process in bytes: that of its own, not of files.
func residentOf(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, "RssAnon:"); is {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	return 0
}

// TestLargeFilesTakeLittleMemory stores and reads 10 GiB through a node. Each of the two adds at
// most 64 MiB to the memory that the node has when it begins.
func TestLargeFilesTakeLittleMemory(t *testing.T) {
	const size, most = int64(10) << 30, int64(64) << 20
	c := nodetest.StartMeasured(t, 3, func(*nodetest.NodeConfig) {})
	key := c.MustAccount("acme").Key
	node := c.Nodes[1]
	api := nodetest.MustClient(t, key, node.URL)
	if _, err := api.Upload(t.Context(), bytesOf("warm", noise(9<<20))); err != nil {
		t.Fatal(err)
	}
	for _, transfer := range []struct {
		name string
		do   func() error
	}{
		{"store", func() error {
			_, err := api.Upload(t.Context(), client.NewFile{
				Key: "large", Size: size, Open: func() (io.ReadCloser, error) { return stream(size), nil },
			})
			return err
		}},
		{"read", func() error {
			n, err := api.Download(t.Context(), "large", "", 0, &matching{want: stream(size)})
			if err == nil && n != size {
				err = fmt.Errorf("%d bytes of %d came", n, size)
			}
			return err
		}},
	} {
		grown := grownBy(t, node.Pid(), transfer.do)
		t.Logf("measured: %d MiB more to %s 10 GiB", grown>>20, transfer.name)
		if grown > most {
			t.Errorf("to %s it takes %d MiB more", transfer.name, grown>>20)
		}
	}
}

// grownBy returns how much larger the memory of a process is than before, at most, while do runs.
func grownBy(t *testing.T, pid int, do func() error) int64 {
	t.Helper()
	before, peak := residentOf(t, pid), int64(0)
	done := make(chan error, 1)
	go func() { done <- do() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return peak - before
		default:
			peak = max(peak, residentOf(t, pid))
			loop.Sleep(t.Context(), 20*time.Millisecond)
		}
	}
}
