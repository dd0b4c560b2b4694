package mount

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/compute"
)

// served answers what a bucket asks for with a handler.
func served(t *testing.T, wait patience, h http.HandlerFunc) *bucket {
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
	return newBucket(&compute.StorageAccess{Bucket: "org-a", Region: "us-east-1", Access: "a", Secret: "b", Token: "c"}, socket, wait)
}

// TestOutages waits for a node that is away, and gives up after a while: at once from
// then on, until there is an answer again.
func TestOutages(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var answer atomic.Int64
	b := served(t, patience{100 * time.Millisecond, time.Minute}, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(int(answer.Load()))
	})
	answer.Store(http.StatusServiceUnavailable)
	if _, err := b.head(t.Context(), "a"); errno(err) != syscall.EIO || asked.Load() < 2 {
		t.Errorf("it gave up after %d requests: %v", asked.Load(), err)
	}
	asked.Store(0)
	if _, err := b.head(t.Context(), "a"); errno(err) != syscall.EIO || asked.Load() != 1 {
		t.Errorf("in an outage it asked %d times: %v", asked.Load(), err)
	}
	answer.Store(http.StatusNotFound)
	if _, err := b.head(t.Context(), "a"); errno(err) != syscall.ENOENT {
		t.Errorf("with an answer: %v", err)
	}
	if !b.down.since.IsZero() {
		t.Error("the outage did not end")
	}
}

// TestSilence gives up on a node that accepts connections and says nothing, or stops in
// the middle.
func TestSilence(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b := served(t, patience{time.Millisecond, 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/middle") && r.Header.Get("Range") == "bytes=0-9" {
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "begun")
			_ = http.NewResponseController(w).Flush()
		}
		<-ended
	})
	defer close(ended)
	if _, err := b.head(t.Context(), "a"); errno(err) != syscall.EIO {
		t.Errorf("silence is %v", err)
	}
	if err := b.read(t.Context(), object{key: "middle", etag: "x"}, make([]byte, 10), 0); errno(err) != syscall.EIO {
		t.Errorf("silence in the middle is %v", err)
	}
	noSocket := newBucket(&compute.StorageAccess{Bucket: "org-a", Region: "us-east-1", Access: "a", Secret: "b"},
		filepath.Join(t.TempDir(), "none"), patience{time.Millisecond, time.Minute})
	if _, err := noSocket.head(t.Context(), "a"); errno(err) != syscall.EIO {
		t.Errorf("no socket is %v", err)
	}
}

// TestReadsOn reads what answers that end early leave out.
func TestReadsOn(t *testing.T) {
	t.Parallel()
	text := []byte("0123456789abcdefghij")
	b := served(t, usual(), func(w http.ResponseWriter, r *http.Request) {
		from, to, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
		first, _ := strconv.Atoi(from)
		last, err := strconv.Atoi(to)
		if err != nil || r.Header.Get("If-Match") != `"x"` {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(last+1-first))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(text[first:min(first+7, last+1)])
	})
	got := make([]byte, 18)
	if err := b.read(t.Context(), object{key: "a", etag: `"x"`}, got, 2); err != nil || !bytes.Equal(got, text[2:]) {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestErrnos tells errors of the bucket from another.
func TestErrnos(t *testing.T) {
	t.Parallel()
	for code, test := range map[string]struct {
		status int
		want   syscall.Errno
	}{
		"QuotaExceeded":         {http.StatusForbidden, syscall.EDQUOT},
		"InsufficientStorage":   {http.StatusInsufficientStorage, syscall.ENOSPC},
		"EntityTooLarge":        {http.StatusBadRequest, syscall.EFBIG},
		"AccessDenied":          {http.StatusForbidden, syscall.EACCES},
		"InvalidAccessKeyId":    {http.StatusForbidden, syscall.EACCES},
		"SignatureDoesNotMatch": {http.StatusForbidden, syscall.EACCES},
		"NoSuchKey":             {http.StatusNotFound, syscall.ENOENT},
		"PreconditionFailed":    {http.StatusPreconditionFailed, syscall.ESTALE},
		"InvalidArgument":       {http.StatusBadRequest, syscall.EINVAL},
		"InternalError":         {http.StatusInternalServerError, syscall.EIO},
	} {
		b := served(t, patience{time.Millisecond, time.Minute}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
		})
		if err := b.copy(t.Context(), "a", "b"); errno(err) != test.want {
			t.Errorf("%s is %v (%v)", code, errno(err), err)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	b := served(t, usual(), func(http.ResponseWriter, *http.Request) {})
	if err := b.copy(stopped, "a", "b"); errno(err) != syscall.EINTR {
		t.Errorf("interrupted: %v", err)
	}
}

// TestSignalsInterruptNoReads holds that a signal ends neither the reads of the code that gets
// it nor those of others that wait for the same block.
func TestSignalsInterruptNoReads(t *testing.T) {
	t.Parallel()
	b := served(t, usual(), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("list-type") != "" {
			fmt.Fprint(w, "<ListBucketResult><Contents><Key>d/a</Key></Contents></ListBucketResult>")
			return
		}
		w.Header().Set("Content-Length", "1")
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusPartialContent)
			fmt.Fprint(w, "x")
		}
	})
	signaled, signal := context.WithCancel(t.Context())
	signal()
	o, err := b.head(signaled, "a")
	if err != nil || o.size != 1 {
		t.Errorf("head: %+v, %v", o, err)
	}
	if has, err := b.has(signaled, "d/"); err != nil || !has {
		t.Errorf("list: %t, %v", has, err)
	}
	cached := &blocks{bucket: b}
	for _, ctx := range []context.Context{signaled, t.Context()} {
		into := make([]byte, 1)
		if n, err := cached.read(ctx, object{key: "a", size: 1, etag: "x"}, into, 0); n != 1 || err != nil || into[0] != 'x' {
			t.Errorf("%d bytes were read, %v", n, err)
		}
	}
}

// TestReadsEndWithTheCode reads from a server that does not answer. The read ends with the
// code, so that its files can be saved.
func TestReadsEndWithTheCode(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	b := served(t, usual(), func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	go func() {
		<-asked
		b.endCode()
	}()
	if err := b.read(t.Context(), object{key: "a", size: 1, etag: "x"}, make([]byte, 1), 0); err == nil {
		t.Error("it reads what nobody sent")
	}
}
