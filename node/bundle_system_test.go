package node_test

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// mustSend sends files as one bundle, its parts to one node after the other.
func mustSend(t *testing.T, texts map[string][]byte, nodes ...*client.Client) compute.BundleID {
	t.Helper()
	var files []wire.BundleFile
	blobs := map[compute.Digest][]byte{}
	for name, text := range texts {
		mode := uint32(0o755)
		f := wire.BundleFile{Path: name, Size: int64(len(text)), Mode: &mode}
		for at := 0; at < len(text); at += compute.MaxChunk {
			piece := text[at:min(at+compute.MaxChunk, len(text))]
			digest := compute.Digest(sha256.Sum256(piece))
			blobs[digest] = piece
			f.Chunks = append(f.Chunks, digest)
		}
		files = append(files, f)
	}
	made, err := nodes[0].CreateBundle(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	for i, digest := range made.Missing {
		if err := nodes[i%len(nodes)].PutBlob(t.Context(), made.BundleID, digest, blobs[digest]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := nodes[1%len(nodes)].CommitBundle(t.Context(), made.BundleID); err != nil {
		t.Fatal(err)
	}
	return made.BundleID
}

// noise returns bytes that do not repeat.
func noise(n int) []byte {
	out := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(out) // It never fails.
	return out
}

// TestBundleGoesThroughTheCluster sends a bundle to a follower, a worker and the
// leader, executes it on the worker and on a server, and fetches what it left from
// every node.
func TestBundleGoesThroughTheCluster(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.NewWith(t, 4, func(i int, cfg *nodetest.NodeConfig) {
		if i == 3 {
			cfg.Role, cfg.GPUs.Simulated = nodetest.Worker, []string{"b200:1"}
		}
	})
	account := c.MustAccount("acme")
	at := func(n *nodetest.Node) *client.Client { return nodetest.MustClient(t, account.Key, n.URL()) }
	follower, leader, worker := at(c.Follower()), at(c.Leader()), at(c.Nodes[3])
	data := noise(9 << 20)
	id := mustSend(t, map[string][]byte{
		"src/main.py": []byte("import os, shutil, subprocess, sys\n" +
			"print(subprocess.run(['./run.sh', *sys.argv[1:]], stdin=sys.stdin, capture_output=True, text=True).stdout)\n" +
			"os.makedirs('outputs/deep')\nshutil.copy('data/noise.bin', 'outputs/deep/copy.bin')\n" +
			"open('outputs/note.txt', 'w').write(os.environ['BERTH_GPU_TYPE'])\nos.symlink('/etc/passwd', 'outputs/link')\n"),
		"run.sh": []byte("#!/bin/sh\necho \"got $* $(cat)\"\n"), "data/noise.bin": data,
	}, follower, worker, leader)
	for _, kind := range []string{"b200", "a100"} {
		started, err := follower.Submit(t.Context(), client.Start{
			Script: "src/main.py", Args: []string{"--lr", "0.1"}, Stdin: "input", BundleID: id.String(), Name: "first",
			ExecutionType: kind, Timeout: 60,
		})
		if err != nil {
			t.Fatal(err)
		}
		e := mustFinish(t, leader, started.ExecutionID)
		if e.Status != compute.StatusCompleted || !strings.Contains(e.Stdout, "got --lr 0.1 input\n") || e.Name == nil || *e.Name != "first" ||
			len(e.Outputs) != 2 || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], `"link" is a link`) {
			t.Fatalf("on %s it ended as %s %v with %v, %v and output\n%s", kind, e.Status, e.Errors, e.Outputs, e.Warnings, e.CombinedOutput)
		}
		kept, err := worker.StoreOutputs(t.Context(), e.ExecutionID, "kept/"+kind)
		if err != nil || kept.Files != 2 {
			t.Errorf("stored are %+v, %v", kept, err)
		}
		var stored bytes.Buffer
		if _, err := follower.Download(t.Context(), "kept/"+kind+"/deep/copy.bin", "", 0, &stored); err != nil ||
			!bytes.Equal(stored.Bytes(), data) {
			t.Errorf("%d bytes are stored, %v", stored.Len(), err)
		}
		for _, n := range c.Nodes {
			var copied, note bytes.Buffer
			if _, err := at(n).Output(t.Context(), e.ExecutionID, "deep/copy.bin", 0, &copied); err != nil || !bytes.Equal(copied.Bytes(), data) {
				t.Errorf("from %s: %d bytes, %v", n.Config.Name, copied.Len(), err)
			}
			if _, err := at(n).Output(t.Context(), e.ExecutionID, "note.txt", 1, &note); err != nil || note.String() != kind[1:] {
				t.Errorf("from %s: %q, %v", n.Config.Name, note.String(), err)
			}
		}
	}
	again, err := worker.CreateBundle(t.Context(), []wire.BundleFile{{
		Path: "other", Size: compute.MaxChunk, Chunks: []compute.Digest{sha256.Sum256(data[:compute.MaxChunk])},
	}})
	if err != nil || len(again.Missing) != 0 {
		t.Errorf("what the organization has sent is asked for again: %v, %v", again, err)
	}
	other := c.MustAccount("umbrella")
	stolen, err := nodetest.MustClient(t, other.Key, c.Nodes[0].URL()).CreateBundle(t.Context(), []wire.BundleFile{{
		Path: "other", Size: compute.MaxChunk, Chunks: []compute.Digest{sha256.Sum256(data[:compute.MaxChunk])},
	}})
	if err != nil || len(stolen.Missing) != 1 {
		t.Errorf("another organization need not send it: %v, %v", stolen, err)
	}
}
