package node_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"berth/api/wire"
	"berth/node/nodetest"
)

// s3Bucket is a bucket as a client of S3 sees it.
type s3Bucket struct {
	*minio.Client
	t     *testing.T
	name  string
	creds wire.StorageCredentials
}

// mustS3 returns the bucket of an organization through a node, with credentials that
// the API made.
func mustS3(t *testing.T, n *nodetest.Node, key string) *s3Bucket {
	t.Helper()
	made, err := nodetest.MustClient(t, key, n.URL()).StorageCredentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return openS3(t, made)
}

func openS3(t *testing.T, made wire.StorageCredentials) *s3Bucket {
	t.Helper()
	endpoint, err := url.Parse(made.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	c, err := minio.New(endpoint.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(made.AccessKey, made.SecretKey, made.SessionToken),
		Region: made.Region, MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &s3Bucket{c, t, made.BucketName, made}
}

func (b *s3Bucket) put(key string, data []byte, opts minio.PutObjectOptions) {
	b.t.Helper()
	if _, err := b.PutObject(b.t.Context(), b.name, key, bytes.NewReader(data), int64(len(data)), opts); err != nil {
		b.t.Fatalf("put %s: %v", key, err)
	}
}

func (b *s3Bucket) get(key string, opts minio.GetObjectOptions) ([]byte, error) {
	o, err := b.GetObject(b.t.Context(), b.name, key, opts)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return io.ReadAll(o)
}

func (b *s3Bucket) list(opts minio.ListObjectsOptions) (keys []string) {
	b.t.Helper()
	for o := range b.ListObjects(b.t.Context(), b.name, opts) {
		if o.Err != nil {
			b.t.Fatal(o.Err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// codeOf returns the code of S3.
func codeOf(err error) string { return minio.ToErrorResponse(err).Code }

// s3 has a client of S3 use the bucket through a follower, a worker and the leader.
func (c *storageCluster) s3(t *testing.T, b *s3Bucket) {
	t.Run("objects", func(t *testing.T) { b.t = t; b.objects(c) })
	t.Run("lists", func(t *testing.T) { b.t = t; b.lists() })
	t.Run("multipart", func(t *testing.T) { b.t = t; b.multipart() })
	t.Run("presigned", func(t *testing.T) { b.t = t; b.presigned() })
	t.Run("conditions", func(t *testing.T) { b.t = t; b.conditional() })
	t.Run("worker", func(t *testing.T) {
		w := mustS3(t, c.Nodes[3], c.key)
		worker := openS3(t, wire.StorageCredentials{
			AccessKey: w.creds.AccessKey, SecretKey: w.creds.SecretKey, SessionToken: w.creds.SessionToken,
			Endpoint: c.Nodes[3].Peer().S3URL(), BucketName: w.name, Region: w.creds.Region,
		})
		data := noise(9 << 20)
		worker.put("by/worker", data, minio.PutObjectOptions{})
		if got, err := worker.get("by/worker", minio.GetObjectOptions{}); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
	})
	t.Run("rights", func(t *testing.T) { b.t = t; b.rights(c) })
}

// objects stores, reads, copies and deletes objects, which are files of the API too.
func (b *s3Bucket) objects(s *storageCluster) {
	t, ctx := b.t, b.t.Context()
	small, big := []byte("small"), noise(6<<20)
	b.put("dir/small.txt", small, minio.PutObjectOptions{ContentType: "text/plain", UserMetadata: map[string]string{"Mtime": "12.5"}})
	b.put("dir/big", big, minio.PutObjectOptions{DisableMultipart: true, SendContentMd5: true})
	b.put("dir/empty", nil, minio.PutObjectOptions{})
	info, err := b.StatObject(ctx, b.name, "dir/small.txt", minio.StatObjectOptions{})
	if err != nil || info.Size != 5 || info.ContentType != "text/plain" || info.UserMetadata["Mtime"] != "12.5" {
		t.Errorf("it is %+v, %v", info, err)
	}
	for key, want := range map[string][]byte{"dir/small.txt": small, "dir/big": big, "dir/empty": nil} {
		if got, err := b.get(key, minio.GetObjectOptions{}); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	opts := minio.GetObjectOptions{}
	if err := opts.SetRange(5<<20-10, 5<<20+9); err != nil {
		t.Fatal(err)
	}
	if got, err := b.get("dir/big", opts); err != nil || !bytes.Equal(got, big[5<<20-10:5<<20+10]) {
		t.Errorf("a part: %d bytes, %v", len(got), err)
	}
	_, err = b.CopyObject(ctx, minio.CopyDestOptions{Bucket: b.name, Object: "copy"}, minio.CopySrcOptions{Bucket: b.name, Object: "dir/big"})
	if got, readErr := b.get("copy", minio.GetObjectOptions{}); err != nil || readErr != nil || !bytes.Equal(got, big) {
		t.Errorf("the copy: %d bytes, %v, %v", len(got), err, readErr)
	}
	_, err = b.CopyObject(ctx, minio.CopyDestOptions{
		Bucket: b.name, Object: "dir/small.txt", ReplaceMetadata: true, UserMetadata: map[string]string{"other": "1"},
	}, minio.CopySrcOptions{Bucket: b.name, Object: "dir/small.txt"})
	info, statErr := b.StatObject(ctx, b.name, "dir/small.txt", minio.StatObjectOptions{})
	if err != nil || statErr != nil || info.UserMetadata["Other"] != "1" || info.UserMetadata["Mtime"] != "" || info.Size != 5 {
		t.Errorf("with other metadata it is %+v, %v, %v", info, err, statErr)
	}
	if tags, err := b.GetObjectTagging(ctx, b.name, "dir/small.txt", minio.GetObjectTaggingOptions{}); err != nil || len(tags.ToMap()) > 0 {
		t.Errorf("its tags are %v, %v", tags, err)
	}
	if _, err := b.GetObjectTagging(ctx, b.name, "none", minio.GetObjectTaggingOptions{}); codeOf(err) != "NoSuchKey" {
		t.Errorf("tags of an object that is not there: %v", err)
	}
	var out bytes.Buffer
	if _, err := s.at(s.Leader()).Download(ctx, "dir/big", "", 0, &out); err != nil || !bytes.Equal(out.Bytes(), big) {
		t.Errorf("through the API: %d bytes, %v", out.Len(), err)
	}
	s.mustStore(s.Leader(), "by/api", big)
	if got, err := b.get("by/api", minio.GetObjectOptions{}); err != nil || !bytes.Equal(got, big) {
		t.Errorf("stored through the API: %d bytes, %v", len(got), err)
	}
	if err := b.RemoveObject(ctx, b.name, "copy", minio.RemoveObjectOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := b.StatObject(ctx, b.name, "copy", minio.StatObjectOptions{}); codeOf(err) != "NoSuchKey" {
		t.Errorf("after it was deleted: %v", err)
	}
}

// lists asks with prefixes, delimiters and pages, and deletes several at once.
func (b *s3Bucket) lists() {
	t := b.t
	var want []string
	for _, key := range []string{"l/a", "l/b/1", "l/b/2", "l/c", "l/ü", "l/z/1"} {
		b.put(key, []byte(key), minio.PutObjectOptions{})
		want = append(want, key)
	}
	slices.Sort(want)
	for _, old := range []bool{false, true} {
		if got := b.list(minio.ListObjectsOptions{Prefix: "l/", Recursive: true, MaxKeys: 2, UseV1: old}); !slices.Equal(got, want) {
			t.Errorf("listed are %q", got)
		}
		got := b.list(minio.ListObjectsOptions{Prefix: "l/", MaxKeys: 2, UseV1: old})
		slices.Sort(got)
		if !slices.Equal(got, []string{"l/a", "l/b/", "l/c", "l/z/", "l/ü"}) {
			t.Errorf("listed by folder are %q", got)
		}
	}
	objects := make(chan minio.ObjectInfo, len(want))
	for _, key := range want {
		objects <- minio.ObjectInfo{Key: key}
	}
	close(objects)
	for failed := range b.RemoveObjects(t.Context(), b.name, objects, minio.RemoveObjectsOptions{}) {
		t.Errorf("%s is not deleted: %v", failed.ObjectName, failed.Err)
	}
	if got := b.list(minio.ListObjectsOptions{Prefix: "l/", Recursive: true}); len(got) != 0 {
		t.Errorf("left are %q", got)
	}
}

// multipart stores an object in parts.
func (b *s3Bucket) multipart() {
	t, ctx := b.t, b.t.Context()
	data := noise(13 << 20)
	b.put("parts", data, minio.PutObjectOptions{PartSize: 5 << 20, NumThreads: 3, UserMetadata: map[string]string{"A": "b"}})
	info, err := b.StatObject(ctx, b.name, "parts", minio.StatObjectOptions{})
	if err != nil || !strings.HasSuffix(info.ETag, "-3") || info.Size != int64(len(data)) || info.UserMetadata["A"] != "b" {
		t.Errorf("it is %+v, %v", info, err)
	}
	if got, err := b.get("parts", minio.GetObjectOptions{}); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	core := minio.Core{Client: b.Client}
	id, err := core.NewMultipartUpload(ctx, b.name, "bad", minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var parts []minio.CompletePart
	for n := 1; n <= 2; n++ {
		p, err := core.PutObjectPart(ctx, b.name, "bad", id, n, bytes.NewReader(data[:1000]), 1000, minio.PutObjectPartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, minio.CompletePart{PartNumber: n, ETag: p.ETag})
	}
	listed, err := core.ListObjectParts(ctx, b.name, "bad", id, 0, 1)
	if err != nil || len(listed.ObjectParts) != 1 || !listed.IsTruncated {
		t.Errorf("listed are %+v, %v", listed, err)
	}
	complete := func(parts ...minio.CompletePart) string {
		_, err := core.CompleteMultipartUpload(ctx, b.name, "bad", id, parts, minio.PutObjectOptions{})
		return codeOf(err)
	}
	wrong := minio.CompletePart{PartNumber: 1, ETag: strings.Repeat("0", 32)}
	for _, test := range []struct{ got, want string }{
		{complete(parts...), "EntityTooSmall"}, {complete(parts[1], parts[0]), "InvalidPartOrder"}, {complete(wrong), "InvalidPart"},
	} {
		if test.got != test.want {
			t.Errorf("%s, want %s", test.got, test.want)
		}
	}
	if _, err := core.PutObjectPart(ctx, b.name, "bad", id, 10_001, bytes.NewReader(nil), 0, minio.PutObjectPartOptions{}); err == nil {
		t.Error("part 10,001 is accepted")
	}
	if err := core.AbortMultipartUpload(ctx, b.name, "bad", id); err != nil {
		t.Error(err)
	}
	if got := complete(parts[0]); got != "NoSuchUpload" {
		t.Errorf("after it was aborted: %s", got)
	}
}

// presigned uses links that were signed before, and changed ones.
func (b *s3Bucket) presigned() {
	t, ctx := b.t, b.t.Context()
	ask := func(method, link string, body io.Reader) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, link, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	put, err := b.PresignedPutObject(ctx, b.name, "signed", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if status, text := ask("PUT", put.String(), strings.NewReader("by a link")); status != 200 {
		t.Errorf("put: %d %s", status, text)
	}
	get, err := b.PresignedGetObject(ctx, b.name, "signed", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if status, text := ask("GET", get.String(), nil); status != 200 || text != "by a link" {
		t.Errorf("get: %d %s", status, text)
	}
	for name, link := range map[string]string{
		"another key":     strings.Replace(get.String(), "/signed?", "/by/api?", 1),
		"a longer life":   strings.Replace(get.String(), "X-Amz-Expires=60", "X-Amz-Expires=600", 1),
		"another method":  put.String(),
		"without a token": strings.Replace(get.String(), "X-Amz-Security-Token=", "X-Other=", 1),
		"a changed date":  strings.Replace(get.String(), "X-Amz-Date="+time.Now().UTC().Format("2006"), "X-Amz-Date=2001", 1),
	} {
		if status, text := ask("GET", link, nil); status < 400 || strings.Contains(text, "by a link") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text := ask("GET", b.signedAt("signed", time.Now()), nil); status != 200 || text != "by a link" {
		t.Errorf("signed just now: %d %s", status, text)
	}
	if status, text := ask("GET", b.signedAt("signed", time.Now().Add(-2*time.Minute)), nil); status != 403 ||
		!strings.Contains(text, "expired") {
		t.Errorf("after its end: %d %s", status, text)
	}
}

// signedAt returns a link to an object that was signed at a time, for a minute.
func (b *s3Bucket) signedAt(key string, at time.Time) string {
	b.t.Helper()
	to := b.EndpointURL().JoinPath(b.name, key)
	to.RawQuery = "X-Amz-Expires=60"
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, to.String(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	creds := aws.Credentials{
		AccessKeyID: b.creds.AccessKey, SecretAccessKey: b.creds.SecretKey, SessionToken: b.creds.SessionToken,
	}
	link, _, err := v4.NewSigner().PresignHTTP(b.t.Context(), creds, req, "UNSIGNED-PAYLOAD", "s3", b.creds.Region, at,
		func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err != nil {
		b.t.Fatal(err)
	}
	return link
}

// conditional reads and writes on conditions.
func (b *s3Bucket) conditional() {
	t, ctx := b.t, b.t.Context()
	b.put("cond", []byte("1"), minio.PutObjectOptions{})
	info, err := b.StatObject(ctx, b.name, "cond", minio.StatObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	opts := minio.GetObjectOptions{}
	if err := errors.Join(opts.SetMatchETag("0123")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.get("cond", opts); codeOf(err) != "PreconditionFailed" {
		t.Errorf("of another version: %v", err)
	}
	none := minio.PutObjectOptions{DisableMultipart: true}
	none.SetMatchETagExcept("*")
	if _, err := b.PutObject(ctx, b.name, "cond", strings.NewReader("2"), 1, none); codeOf(err) != "PreconditionFailed" {
		t.Errorf("although it is there: %v", err)
	}
	match := minio.PutObjectOptions{DisableMultipart: true}
	match.SetMatchETag(info.ETag)
	if _, err := b.PutObject(ctx, b.name, "cond", strings.NewReader("3"), 1, match); err != nil {
		t.Errorf("in place of the version that was read: %v", err)
	}
	if _, err := b.PutObject(ctx, b.name, "cond", strings.NewReader("4"), 1, match); codeOf(err) != "PreconditionFailed" {
		t.Errorf("in place of an older version: %v", err)
	}
	for header, want := range map[string]string{`If-None-Match: *`: "PreconditionFailed", `If-Match: ""`: "PreconditionFailed", "If-Match: " + info.ETag: "PreconditionFailed", "If-Match: *": ""} {
		name, value, _ := strings.Cut(header, ": ")
		copied := minio.CopyDestOptions{Bucket: b.name, Object: "cond"}
		_, err := minio.Core{Client: b.Client}.CopyObject(ctx, b.name, "dir/small.txt", b.name, copied.Object, map[string]string{name: value}, minio.CopySrcOptions{}, minio.PutObjectOptions{})
		if codeOf(err) != want {
			t.Errorf("copied with %s: %v", header, err)
		}
	}
	b.markers()
	for _, key := range []string{"a/../b", "..", strings.Repeat("k", 1025)} {
		if _, err := b.PutObject(ctx, b.name, key, strings.NewReader("x"), 1, minio.PutObjectOptions{}); err == nil {
			t.Errorf("%.20q is stored", key)
		}
	}
}

// markers stores the object with which clients make an empty folder, and deletes it in each way.
func (b *s3Bucket) markers() {
	t, ctx := b.t, b.t.Context()
	for name, remove := range map[string]func() error{
		"delete": func() error { return b.RemoveObject(ctx, b.name, "marker/", minio.RemoveObjectOptions{}) },
		"delete several": func() error {
			keys := make(chan minio.ObjectInfo, 1)
			keys <- minio.ObjectInfo{Key: "marker/"}
			close(keys)
			for failed := range b.RemoveObjects(ctx, b.name, keys, minio.RemoveObjectsOptions{}) {
				return failed.Err
			}
			return nil
		},
	} {
		b.put("marker/", nil, minio.PutObjectOptions{})
		if info, err := b.StatObject(ctx, b.name, "marker/", minio.StatObjectOptions{}); err != nil || info.Size != 0 {
			t.Errorf("the marker is %+v, %v", info, err)
		}
		if err := remove(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for o := range b.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: "marker/", Recursive: true}) {
			t.Errorf("after %s there is %q, %v", name, o.Key, o.Err)
		}
	}
}

// rights uses credentials that are not good, or not for a bucket.
func (b *s3Bucket) rights(s *storageCluster) {
	t, ctx := b.t, b.t.Context()
	other := mustS3(t, s.Follower(), s.other)
	other.put("mine", []byte("x"), minio.PutObjectOptions{})
	foreign := *b
	foreign.name = other.name
	_, statErr := foreign.StatObject(ctx, foreign.name, "mine", minio.StatObjectOptions{})
	_, putErr := foreign.PutObject(ctx, foreign.name, "x", strings.NewReader("x"), 1, minio.PutObjectOptions{})
	_, copyErr := b.CopyObject(ctx, minio.CopyDestOptions{Bucket: b.name, Object: "stolen"}, minio.CopySrcOptions{Bucket: other.name, Object: "mine"})
	for what, err := range map[string]error{"stat": statErr, "put": putErr, "copy": copyErr} {
		if code := codeOf(err); code != "NoSuchBucket" && (what != "stat" || code != "NoSuchKey") { // A HEAD has no body.
			t.Errorf("%s in another organization's bucket: %v", what, err)
		}
	}
	change := func(f func(*wire.StorageCredentials)) error {
		made := b.creds
		f(&made)
		_, err := openS3(t, made).StatObject(ctx, b.name, "signed", minio.StatObjectOptions{})
		return err
	}
	if err := change(func(*wire.StorageCredentials) {}); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func(*wire.StorageCredentials){
		"no token":           func(c *wire.StorageCredentials) { c.SessionToken = "" },
		"another token":      func(c *wire.StorageCredentials) { c.SessionToken = other.creds.SessionToken },
		"another secret":     func(c *wire.StorageCredentials) { c.SecretKey = other.creds.SecretKey },
		"another access key": func(c *wire.StorageCredentials) { c.AccessKey = other.creds.AccessKey },
		"another's credentials": func(c *wire.StorageCredentials) {
			c.AccessKey, c.SecretKey, c.SessionToken = other.creds.AccessKey, other.creds.SecretKey, other.creds.SessionToken
		},
		"made up": func(c *wire.StorageCredentials) { c.AccessKey, c.SecretKey, c.SessionToken = "-", "", "" },
	} {
		if err := change(f); err == nil {
			t.Errorf("%s is good enough", what)
		}
	}
	buckets, err := b.ListBuckets(ctx)
	if err != nil || len(buckets) != 1 || buckets[0].Name != b.name {
		t.Errorf("buckets are %+v, %v", buckets, err)
	}
	if err := b.MakeBucket(ctx, "another", minio.MakeBucketOptions{}); err == nil {
		t.Error("another bucket was made")
	}
	account := nodetest.MustClient(t, s.key, s.Follower().URL())
	minted, err := account.CreateKey(ctx, "acme", "short")
	if err != nil {
		t.Fatal(err)
	}
	short := mustS3(t, s.Follower(), minted.PlaintextKey)
	short.put("short", []byte("x"), minio.PutObjectOptions{})
	if err := account.DeleteKey(ctx, "acme", minted.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := short.StatObject(ctx, short.name, "short", minio.StatObjectOptions{}); err == nil {
		t.Error("credentials outlive the API key that they were made with")
	}
}
