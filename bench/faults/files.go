package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/api/client"
	"berth/bench/faults/check"
)

// files is the workload of stored files: clients store, read and delete them. Each
// client has keys of its own and repeats an operation until its outcome is known, so that
// it knows what every file has to be at any time.
type files struct {
	session *session
	org     organization

	mu    sync.Mutex
	known map[string][]int // The versions that a file may have, by key; 0 for none.
}

const (
	filesPerClient = 10
	fileVersions   = 40 // Different contents of a key, so that a long run does not fill the disks.
	smallFileMost  = 16 << 10
	midFileMost    = 200 << 10
	largeFileSize  = 4<<20 + 300_000 // More than one chunk.
)

func (w *files) name() string { return "files" }

func (w *files) clients() int { return 8 }

func (w *files) prepare(ctx context.Context) (err error) {
	w.known = make(map[string][]int)
	w.org, err = w.session.newOrganization(ctx, "files")
	return err
}

func (w *files) run(ctx context.Context, c *caller) {
	for c.pause(ctx, 50*time.Millisecond) {
		key := fmt.Sprintf("client-%d/%d", c.id, c.rng.IntN(filesPerClient))
		switch n := c.rng.IntN(10); {
		case n < 5:
			w.change(ctx, c, key, 1+c.rng.IntN(fileVersions))
		case n < 7:
			w.change(ctx, c, key, 0)
		default:
			w.read(ctx, c, key)
		}
	}
}

// fileContent returns the content of a version of a file.
func fileContent(key string, version int) []byte {
	line := fmt.Appendf(nil, "%s version %d\n", key, version)
	size := 1 + version*7919%smallFileMost
	switch {
	case version == fileVersions && strings.HasSuffix(key, "/0"):
		size = largeFileSize
	case version%10 == 0:
		size = 1 + version*104_729%midFileMost
	}
	return bytes.Repeat(line, 1+size/len(line))
}

// versions returns those that a file may have.
func (w *files) versions(key string) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.known[key]; ok {
		return known
	}
	return []int{0}
}

func (w *files) setVersions(key string, versions ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[key] = versions
}

// change stores a version of a file, or deletes it, and repeats the same operation until
// its outcome is known. A repeat gets the answer of the first try.
func (w *files) change(ctx context.Context, c *caller, key string, version int) {
	before := w.versions(key)
	if version == 0 && slices.Equal(before, []int{0}) {
		return
	}
	c.next()
	data := fileContent(key, version)
	change := c.try
	if version == 0 {
		change = func(ctx context.Context, name string, do func(context.Context) error) (outcome, error) {
			return c.relieve(ctx, name, "delete "+key, do)
		}
	}
	doubt := false
	for ctx.Err() == nil {
		node := c.any(w.org.key)
		out, err := change(ctx, w.name(), func(ctx context.Context) error {
			if version == 0 {
				return node.DeleteFile(ctx, key)
			}
			_, err := node.Upload(ctx, client.NewFile{Key: key, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(data)), nil
			}})
			return err
		})
		switch {
		case out == done:
			w.setVersions(key, version)
			return
		case out == refused:
			w.session.unexpected(w.name(), fmt.Sprintf("change %s to version %d", key, version), err)
			return
		case out == full && !doubt:
			return
		}
		if doubt = doubt || out == unknown; doubt {
			w.setVersions(key, append(slices.Clone(before), version)...)
		}
		c.pause(ctx, 100*time.Millisecond)
	}
}

func (w *files) read(ctx context.Context, c *caller, key string) {
	node := c.any(w.org.key)
	var got bytes.Buffer
	err := c.read(ctx, w.name(), func(ctx context.Context) error {
		_, err := node.Download(ctx, key, "", 0, &got)
		return err
	})
	if v := fileViolation(key, w.versions(key), got.Bytes(), err); v != nil {
		w.session.violate([]check.Violation{*v})
	}
}

// fileViolation compares the answer of a read with the versions that a file may have. An
// error that is not about the file shows nothing.
func fileViolation(key string, may []int, got []byte, err error) *check.Violation {
	answer, _ := errors.AsType[*client.Error](err)
	absent := answer != nil && answer.Status == http.StatusNotFound
	if err != nil && !absent {
		return nil
	}
	if absent && slices.Contains(may, 0) ||
		!absent && slices.ContainsFunc(may, func(v int) bool { return v > 0 && bytes.Equal(got, fileContent(key, v)) }) {
		return nil
	}
	v := &check.Violation{
		What: "lost", Object: "file " + key, Detail: fmt.Sprintf("it is not there, and should have the version %v", may),
	}
	if !absent {
		head, _, _ := bytes.Cut(got[:min(len(got), 100)], []byte("\n"))
		v.What = "wrong file"
		v.Detail = fmt.Sprintf("it has %d bytes, %q, and should have the version %v", len(got), head, may)
	}
	return v
}

// finish reads every file, and the list, at every node.
func (w *files) finish(ctx context.Context) (wrong []check.Violation) {
	for _, n := range w.session.world.Nodes {
		node, err := client.New(client.Config{Addrs: []string{n.URL()}, Token: w.org.key, RetryFor: time.Minute})
		if err != nil {
			return append(wrong, check.Violation{What: "recovery", Object: "files", Detail: err.Error()})
		}
		wrong = append(wrong, w.verify(ctx, node)...)
	}
	return wrong
}

// mayBeListed reports whether a file that may have these versions, 0 for none, may be listed,
// or not.
func mayBeListed(may []int, listed bool) bool {
	return slices.ContainsFunc(may, func(version int) bool { return (version > 0) == listed })
}

// verify compares the files that a node has with those that there may be.
func (w *files) verify(ctx context.Context, node *client.Client) (wrong []check.Violation) {
	listed := make(map[string]bool)
	for cursor := ""; ; {
		rows, next, err := node.Files(ctx, "", cursor, page)
		if err != nil {
			return []check.Violation{{What: "recovery", Object: "files", Detail: "list: " + err.Error()}}
		}
		for _, f := range rows {
			listed[f.Key] = true
		}
		if cursor = next; next == "" {
			break
		}
	}
	w.mu.Lock()
	known := maps.Clone(w.known)
	w.mu.Unlock()
	for key, may := range known {
		if !mayBeListed(may, listed[key]) {
			wrong = append(wrong, check.Violation{
				What: "wrong list", Object: "file " + key,
				Detail: fmt.Sprintf("it is listed: %t, and may have the versions %v", listed[key], may),
			})
		}
		var got bytes.Buffer
		_, err := node.Download(ctx, key, "", 0, &got)
		if answer, ok := errors.AsType[*client.Error](err); err != nil && (!ok || answer.Status != http.StatusNotFound) {
			wrong = append(wrong, check.Violation{What: "recovery", Object: "file " + key, Detail: err.Error()})
			continue
		}
		if v := fileViolation(key, may, got.Bytes(), err); v != nil {
			wrong = append(wrong, *v)
		}
	}
	return wrong
}
