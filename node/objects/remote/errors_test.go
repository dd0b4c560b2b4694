package remote_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/node/objects/remote"
	"berth/node/objects/remote/storetest"
)

// wantUnavailable checks that each operation fails with a message, in one line.
func wantUnavailable(t *testing.T, s *remote.Store, want string) {
	t.Helper()
	dead := func(compute.Hash) bool { return false }
	errs := make(map[string]error)
	_, errs["get"] = s.Get(t.Context(), compute.Hash{1})
	_, errs["has"] = s.Has(t.Context(), compute.Hash{1})
	_, errs["all"] = s.All(t.Context())
	_, errs["put"] = s.Put(t.Context(), []byte("data"))
	_, _, errs["sweep"] = s.Sweep(t.Context(), dead, 0)
	_, errs["get a copy"] = s.Copies().Get(t.Context(), compute.Hash{1})
	errs["delete a copy"] = s.Copies().Delete(t.Context(), compute.Hash{1})
	for what, err := range errs {
		if compute.CodeOf(err) != compute.CodeUnavailable || !strings.Contains(compute.MessageOf(err), want) ||
			strings.Contains(compute.MessageOf(err), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMissingBucket reports a bucket that does not exist, and no blob as lost.
func TestMissingBucket(t *testing.T) {
	each(t, func(t *testing.T, kind storetest.Kind, server *storetest.Store) {
		s := open(t, kind.At(t, server.Host, "none"), "mine", time.Now)
		wantUnavailable(t, s, "no such bucket")
	})
}

// forbidden are the answers of each kind of store to credentials that it does not accept.
var forbidden = map[string]string{
	"s3":     "<Error><Code>InvalidAccessKeyId</Code><Message>No such key.</Message></Error>",
	"azblob": "<Error><Code>AuthorizationFailure</Code><Message>Not authorized.</Message></Error>",
	"gs":     `{"error":{"code":403,"message":"No access."}}`,
}

// TestRefusedCredentials reports credentials that the store does not accept, and no blob as
// lost.
func TestRefusedCredentials(t *testing.T) {
	for _, kind := range storetest.Kinds() {
		t.Run(kind.Scheme, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("x-ms-error-code", "AuthorizationFailure")
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, forbidden[kind.Scheme])
			}))
			defer server.Close()
			s := open(t, kind.At(t, server.Listener.Addr().String(), storetest.BucketName), "mine", time.Now)
			wantUnavailable(t, s, "refuses the credentials")
		})
	}
}

// TestCopyThatCannotBeFollowed has Azure copy for a while, and not answer how far it is: the client
// panics, and the caller gets an error.
func TestCopyThatCannotBeFollowed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && r.URL.Query().Get("comp") == "list":
			_, _ = io.WriteString(w, "<EnumerationResults><Blobs></Blobs></EnumerationResults>")
		case r.Method == http.MethodGet:
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			_, _ = io.WriteString(w, "mine") // Whose the store is.
		case r.Method == http.MethodPut:
			w.Header().Set("x-ms-copy-status", "pending")
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()
	for _, kind := range storetest.Kinds() {
		if kind.Scheme == "azblob" {
			s := open(t, kind.At(t, server.Listener.Addr().String(), storetest.BucketName), "mine", time.Now)
			err := s.Copies().Discard(t.Context(), compute.Hash{1})
			if compute.CodeOf(err) != compute.CodeUnavailable || !strings.Contains(compute.Detailed(err).Error(), "panicked") {
				t.Errorf("got %v", compute.Detailed(err))
			}
		}
	}
}

// TestDamagedUpload changes a byte of a blob on its way to the store, which refuses it. Azure
// compares the MD5 if the blob comes with one request, and refuses a second checksum.
func TestDamagedUpload(t *testing.T) {
	each(t, func(t *testing.T, kind storetest.Kind, server *storetest.Store) {
		data := bytes.Repeat([]byte("blob"), 1<<10)
		if kind.Scheme == "azblob" {
			data = bytes.Repeat(data, 3<<10) // Its client would make several requests of them.
		}
		sent := make(chan http.Header, 16)
		proxy := httptest.NewServer(damage(server.Host, data, sent))
		defer proxy.Close()
		s := open(t, kind.At(t, proxy.Listener.Addr().String(), storetest.BucketName), "mine", time.Now)
		if _, err := s.Put(t.Context(), data); compute.CodeOf(err) != compute.CodeUnavailable {
			t.Errorf("put: %v", err)
		}
		if kind.Scheme == "azblob" {
			head := <-sent
			if head.Get("X-Ms-Blob-Content-Md5") == "" || head.Get("X-Ms-Content-Crc64") != "" {
				t.Errorf("the checksums are not those of one request: %v", head)
			}
		}
		if n := server.Count(t, "blobs"); n != 0 {
			t.Errorf("the store has %d blobs", n)
		}
	})
}

// damage returns a proxy that changes data in requests, and sends their headers to sent.
func damage(host string, data []byte, sent chan<- http.Header) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if at := bytes.Index(body, data); at >= 0 {
			body[at+len(data)/2] ^= 1
			select {
			case sent <- r.Header.Clone():
			default: // The client has tried it often.
			}
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		proxy.ServeHTTP(w, r)
	})
}
