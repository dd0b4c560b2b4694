package node_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// mountedCode works with the stored files as with files of a disk.
const mountedCode = `
import hashlib, os, shutil
os.chdir('/mnt/s3')
data = open('given/big.bin', 'rb').read()
print(hashlib.sha256(data).hexdigest())
with open('given/big.bin', 'rb') as f:
    f.seek(5 << 20)
    assert f.read(1000) == data[5 << 20:(5 << 20) + 1000]
assert sorted(os.listdir('given')) == ['big.bin', 'small.txt'], os.listdir('given')
os.makedirs('out/a/b')
with open('out/a/b/text', 'w') as f:
    f.write('first')
with open('out/a/b/text', 'a') as f:
    f.write(' second')
assert open('out/a/b/text').read() == 'first second'
open('out/empty', 'w').close()
with open('out/tmp', 'wb') as f:
    f.write(data)
os.rename('out/tmp', 'out/copy.bin')
assert not os.path.exists('out/tmp') and os.path.getsize('out/copy.bin') == len(data)
with open('out/copy.bin', 'r+b') as f:
    f.seek(100)
    f.write(b'patched')
os.truncate('out/a/b/text', 5)
os.mkdir('out/gone')
os.rmdir('out/gone')
assert os.listdir('marked') == [], os.listdir('marked')
os.rmdir('marked')
assert not os.path.exists('marked')
os.rmdir('deep/marked')
assert os.listdir('deep') == []
os.rmdir('deep')
try:
    os.rmdir('full')
except OSError as e:
    assert e.errno == 39, e
else:
    raise AssertionError('a directory with files is removed')
os.remove('given/small.txt')
assert os.listdir('given') == ['big.bin']
try:
    open('given/none')
except FileNotFoundError:
    pass
try:
    os.rmdir('out/a')
except OSError as e:
    assert e.errno == 39, e
left = open('out/unclosed', 'w')
left.write('to the end')
left.flush()
print(os.getpid(), flush=True)
os.kill(os.getpid(), 9)
`

// mustHaveFUSE fails the test where no storage can be mounted.
func mustHaveFUSE(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Fatalf("%v: load the module with modprobe fuse", err)
	}
}

// mounts executes code through a follower, on a server and on a worker, that sees the
// stored files as a directory.
func (c *storageCluster) mounts(t *testing.T) {
	mustHaveFUSE(t)
	big := noise(9 << 20)
	sum := sha256.Sum256(big)
	mounted := true
	api := c.at(c.Follower())
	for name, gpu := range map[string]string{"server": "a100", "worker": "b200"} {
		c.mustStore(c.Leader(), "given/big.bin", big)
		c.mustStore(c.Leader(), "given/small.txt", []byte("small"))
		for _, marker := range []string{"marked/", "deep/marked/", "full/", "full/b/"} {
			c.mustStore(c.Leader(), marker, nil)
		}
		started, err := api.Submit(t.Context(), client.Start{
			Code: mountedCode, ExecutionType: gpu, Timeout: 120, EnableS3Mount: &mounted,
		})
		if err != nil {
			t.Fatal(err)
		}
		e := mustFinish(t, api, started.ExecutionID)
		if e.Status != compute.StatusFailed || e.ReturnCode == nil || *e.ReturnCode != 137 ||
			!strings.HasPrefix(e.Stdout, hex.EncodeToString(sum[:])) {
			t.Fatalf("on a %s it ended as %s %v with %q %q", name, e.Status, e.Errors, e.Stdout, e.Stderr)
		}
		patched := bytes.Clone(big)
		copy(patched[100:], "patched")
		want := map[string]string{
			"out/a/b/text": "first", "out/empty": "", "out/copy.bin": string(patched), "out/unclosed": "to the end",
		}
		files, _, err := api.Files(t.Context(), "out/", "", 0)
		if err != nil || len(files) != len(want) {
			t.Errorf("on a %s it left %v, %v", name, files, err)
		}
		for key, text := range want {
			var out bytes.Buffer
			if _, err := api.Download(t.Context(), key, "", 0, &out); err != nil || out.String() != text {
				t.Errorf("on a %s it left %d bytes as %s, %v", name, out.Len(), key, err)
			}
		}
		for folder, want := range map[string]int{"marked": 0, "deep": 0, "full": 2} {
			if files, _, err := api.Files(t.Context(), folder+"/", "", 0); err != nil || len(files) != want {
				t.Errorf("on a %s it left %v, %v", name, files, err)
			}
		}
		for _, folder := range []string{"out", "full"} {
			if _, err := api.DeleteFolder(t.Context(), folder); err != nil {
				t.Error(err)
			}
		}
	}
	c.mountedRights(t, api)
	c.fullMount(t)
	c.abortedMount(t, api)
	mustHaveNoMounts(t, c.Nodes)
}

// mountedRights shows that code sees the files of its own organization alone.
func (c *storageCluster) mountedRights(t *testing.T, api *client.Client) {
	mounted := true
	start := client.Start{
		Code:          "import os\nprint(os.listdir('/data/bucket'), os.path.exists('/data/bucket/given/big.bin'))",
		ExecutionType: "cpu", Timeout: 60,
		EnableS3Mount: &mounted, S3MountPath: "/data/bucket",
	}
	foreign := nodetest.MustClient(t, c.other, c.Follower().URL())
	started, err := foreign.Submit(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, foreign, started.ExecutionID); !strings.HasSuffix(e.Stdout, "] False\n") || e.S3MountPath == nil || *e.S3MountPath != "/data/bucket" {
		t.Errorf("another organization sees %q %q, %v", e.Stdout, e.Stderr, e.S3MountPath)
	}
	for _, path := range []string{"/usr/lib", "/", "mnt", "/mnt/../etc", "/proc", "/mnt/s3/", "/data/\x01", "/work"} {
		start.S3MountPath = path
		if _, err := api.Submit(t.Context(), start); statusOf(err) != 422 {
			t.Errorf("mounted at %q: %v", path, err)
		}
	}
}

// fullCode stores more than its organization may, and prints the errors.
const fullCode = `
import os
for attempt in range(20):
    f = open('/mnt/s3/much', 'wb')
    f.write(bytes(4096))
    try:
        f.close()
        print('closed')
    except OSError as e:
        print(e.errno)
`

// fullMount shows that code hears of a full quota when it stores a file, and that the
// output names what is not stored.
func (c *storageCluster) fullMount(t *testing.T) {
	root := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	if err := root.SetStorageLimits(t.Context(), "umbrella", wire.StorageLimits{MaxBytes: 100}); err != nil {
		t.Fatal(err)
	}
	mounted := true
	foreign := nodetest.MustClient(t, c.other, c.Follower().URL())
	started, err := foreign.Submit(t.Context(), client.Start{Code: fullCode, ExecutionType: "cpu", Timeout: 60, EnableS3Mount: &mounted})
	if err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, foreign, started.ExecutionID); e.Stdout != strings.Repeat("122\n", 20) || !strings.Contains(e.CombinedOutput, "1 files could not be stored: much: QuotaExceeded: ") {
		t.Errorf("over the quota it ended as %s with %q", e.Status, e.CombinedOutput)
	}
}

// abortedMount shows that code that is aborted leaves no mount.
func (c *storageCluster) abortedMount(t *testing.T, api *client.Client) {
	mounted := true
	started, err := api.Submit(t.Context(), client.Start{
		Code:          "import time\nf = open('/mnt/s3/aborted', 'w')\nf.write('x')\nf.flush()\nprint('on', flush=True)\ntime.sleep(300)",
		ExecutionType: "cpu", Timeout: 400, EnableS3Mount: &mounted,
	})
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, time.Minute, "the code to write", func() bool {
		e, err := api.Execution(t.Context(), started.ExecutionID, 0)
		return err == nil && strings.Contains(e.Stdout, "on")
	})
	if err := api.Abort(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusAborted {
		t.Errorf("it ended as %s", e.Status)
	}
}

// mustHaveNoMounts checks that no mount of the nodes is left on this machine.
func mustHaveNoMounts(t *testing.T, nodes []*nodetest.Node) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if strings.Contains(string(mounts), "/run/berth/storage/"+n.ID().String()+".") {
			t.Errorf("mounts of %s are left:\n%s", n.Config.Name, mounts)
		}
	}
}
