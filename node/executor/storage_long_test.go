//go:build long

package executor_test

import (
	"fmt"
	"net/http"
	"testing"

	"berth/compute"
	"berth/node/executor"
)

// TestAbortWhileStorageTakesNothing aborts code that waits for a file to be stored, which
// no signal ends: its mount is cut.
func TestAbortWhileStorageTakesNothing(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	stored, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	n := newNode(t, func(cfg *executor.Config) {
		storageOf(t, cfg, func(w http.ResponseWriter, r *http.Request) {
			switch r.Method {
			case http.MethodHead:
				w.WriteHeader(http.StatusNotFound)
			case http.MethodGet:
				fmt.Fprint(w, "<ListBucketResult/>")
			default:
				select {
				case stored <- struct{}{}:
				case <-ended:
				}
				<-ended
			}
		})
	})
	// Two parts of the file system wait: one for the lock of the other.
	w := n.newWork(compute.Bundle{Code: `
import os, threading
f = os.open('/mnt/s3/a', os.O_CREAT | os.O_WRONLY)
os.write(f, b'text')
threading.Thread(target=os.close, args=(os.dup(f),)).start()
while True:
    os.write(f, b'more')
`})
	w.Execution.Storage = &compute.StorageMount{Path: "/mnt/s3"}
	id := n.place(w)
	<-stored
	n.update(func() { n.work[id].Execution.Stop = compute.StopHard })
	if o := n.end(id); o.Status != compute.StatusAborted {
		t.Errorf("it ended as %s %q", o.Status, o.Detail)
	}
	mustHaveNoMount(t, id)
}
