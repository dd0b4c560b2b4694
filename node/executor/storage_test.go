package executor_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/prepare"
)

// needFUSE fails the test where no storage can be mounted.
func needFUSE(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("sandboxes are started by root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Fatalf("%v: load the module with modprobe fuse", err)
	}
}

// storageOf has a handler answer what the mounts of a node ask for.
func storageOf(t *testing.T, cfg *executor.Config, h http.HandlerFunc) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s3")
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // It ends with the test.
	t.Cleanup(func() { server.Close() })
	cfg.Storage = prepare.Storage{Socket: socket, Access: func(context.Context, compute.Work) (*compute.StorageAccess, error) {
		return &compute.StorageAccess{Bucket: "org-a", Region: "us-east-1", Access: "a", Secret: "b", Token: "c"}, nil
	}}
}

// mustHaveNoMount checks that nothing of an execution is mounted on this machine.
func mustHaveNoMount(t *testing.T, id compute.ExecutionID) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), id.String()) {
		t.Errorf("a mount is left, %v:\n%s", err, mounts)
	}
	if left, err := filepath.Glob("/run/berth/storage/*" + id.String() + "*"); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// TestAbortWhileStorageIsSilent aborts code that waits for its files.
func TestAbortWhileStorageIsSilent(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	asked, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	n := newNode(t, func(cfg *executor.Config) {
		storageOf(t, cfg, func(http.ResponseWriter, *http.Request) {
			select {
			case asked <- struct{}{}:
			case <-ended:
			}
			<-ended
		})
	})
	w := n.newWork(compute.Bundle{Code: "open('/mnt/s3/a')"})
	w.Execution.Storage = &compute.StorageMount{Path: "/mnt/s3"}
	id := n.place(w)
	<-asked
	n.update(func() { n.work[id].Execution.Stop = compute.StopHard })
	if o := n.end(id); o.Status != compute.StatusAborted {
		t.Errorf("it ended as %s %q", o.Status, o.Detail)
	}
	mustHaveNoMount(t, id)
}

// TestStorageThatCannotBeMounted refuses what asked for stored files, and has the rest go
// without, with a word in its output.
func TestStorageThatCannotBeMounted(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil) // Without a socket.
	o, text := n.execute(compute.Bundle{Code: "import os\nprint(os.path.exists('/mnt/s3'))"}, func(w *compute.Work) {
		w.Execution.Storage = &compute.StorageMount{Path: "/mnt/s3", Optional: true}
	})
	if o.Status != compute.StatusCompleted || !strings.Contains(text, "storage: not mounted at /mnt/s3") || !strings.Contains(text, "False") {
		t.Errorf("it ended as %s %q with %q", o.Status, o.Detail, text)
	}
	o, _ = n.execute(compute.Bundle{Code: "pass"}, func(w *compute.Work) {
		w.Execution.Storage = &compute.StorageMount{Path: "/mnt/s3"}
	})
	if o.Status != compute.StatusSystemFailure || !strings.Contains(o.Detail, "storage cannot be mounted at /mnt/s3") {
		t.Errorf("it ended as %s %q", o.Status, o.Detail)
	}
}

// TestStorageIsSeenWhileItIsWritten asks about a file, and makes another one beside it,
// while the first one is being stored.
func TestStorageIsSeenWhileItIsWritten(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	came, on := make(chan struct{}), make(chan struct{})
	n := newNode(t, func(cfg *executor.Config) {
		storageOf(t, cfg, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodHead:
				w.WriteHeader(http.StatusNotFound)
			case r.Method == http.MethodGet:
				fmt.Fprint(w, "<ListBucketResult/>")
			case strings.HasSuffix(r.URL.Path, "/first"):
				close(came)
				<-on
			default:
				<-came
				close(on) // Only now the first one is stored.
			}
		})
	})
	o, text := n.execute(compute.Bundle{Code: `
import os, threading
f = open('/mnt/s3/first', 'w')
f.write('text')
f.flush()
storing = threading.Thread(target=f.close)
storing.start()
print(os.stat('/mnt/s3/first').st_size, os.listdir('/mnt/s3'))
with open('/mnt/s3/second', 'w') as second:
    second.write('x')
storing.join()
`}, func(w *compute.Work) { w.Execution.Storage = &compute.StorageMount{Path: "/mnt/s3"} })
	if o.Status != compute.StatusCompleted || !strings.Contains(text, "4 ['first']") {
		t.Errorf("it ended as %s %q: %s", o.Status, o.Detail, text)
	}
}
