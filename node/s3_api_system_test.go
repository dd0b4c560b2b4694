package node_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"berth/api/wire"
	"berth/node/nodetest"
)

// awsOf returns Amazon's client with credentials that the API made, for an endpoint.
func awsOf(creds wire.StorageCredentials, endpoint string) *s3.Client {
	given := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: creds.AccessKey, SecretAccessKey: creds.SecretKey, SessionToken: creds.SessionToken}, nil
	})
	return s3.New(s3.Options{Region: creds.Region, BaseEndpoint: &endpoint, UsePathStyle: true, Credentials: given, RetryMaxAttempts: 1})
}

// s3OnAPI uses the bucket on the port of the API, through every kind of node.
func (c *storageCluster) s3OnAPI(t *testing.T) {
	creds, err := c.at(c.Follower()).StorageCredentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]*nodetest.Node{"leader": c.Leader(), "follower": c.Follower(), "worker": c.Nodes[3]} {
		t.Run(name, func(t *testing.T) {
			b := &awsBucket{awsOf(creds, n.URL()+"/s3"), t, creds.BucketName}
			b.objects()
			b.multipart()
			b.links(n)
			foreign := &awsBucket{b.Client, t, "org-00000000-0000-0000-0000-000000000000"}
			if _, err := foreign.get("a"); awsCode(err) != "NoSuchBucket" {
				t.Errorf("a foreign bucket: %v", err)
			}
		})
	}
	bad := creds
	bad.SecretKey += "x"
	b := &awsBucket{awsOf(bad, c.Follower().URL()+"/s3"), t, creds.BucketName}
	if _, err := b.get("a"); awsCode(err) != "SignatureDoesNotMatch" {
		t.Errorf("with a wrong secret: %v", err)
	}
}

// awsBucket is a bucket as Amazon's client sees it.
type awsBucket struct {
	*s3.Client
	t    *testing.T
	name string
}

func awsCode(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

func (b *awsBucket) put(key string, data []byte) {
	b.t.Helper()
	if _, err := b.PutObject(b.t.Context(), &s3.PutObjectInput{Bucket: &b.name, Key: &key, Body: bytes.NewReader(data)}); err != nil {
		b.t.Fatalf("put %q: %v", key, err)
	}
}

func (b *awsBucket) get(key string) ([]byte, error) {
	out, err := b.GetObject(b.t.Context(), &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(out.Body)
}

// objects stores, reads, lists, copies and deletes, with keys that are escaped.
func (b *awsBucket) objects() {
	t, ctx := b.t, b.t.Context()
	keys := []string{"s3/a", "s3/b c+d%2F&e=ü", "s3/s3/x", "s3/~!$'()*,;:@"}
	for _, key := range keys {
		b.put(key, []byte(key))
		if got, err := b.get(key); err != nil || string(got) != key {
			t.Errorf("%q is %q, %v", key, got, err)
		}
		head, err := b.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: &key})
		if err != nil || aws.ToInt64(head.ContentLength) != int64(len(key)) {
			t.Errorf("head of %q: %+v, %v", key, head, err)
		}
	}
	if _, err := b.CopyObject(ctx, &s3.CopyObjectInput{
		Bucket: &b.name, Key: aws.String("s3/copy"), CopySource: aws.String(b.name + "/s3/a"),
	}); err != nil {
		t.Error(err)
	}
	list, err := b.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: aws.String("s3/")})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	var ids []types.ObjectIdentifier
	for _, o := range list.Contents {
		found, ids = append(found, *o.Key), append(ids, types.ObjectIdentifier{Key: o.Key})
	}
	if want := append(slices.Clone(keys), "s3/copy"); len(found) != len(want) {
		t.Errorf("listed are %q, want %q", found, want)
	}
	out, err := b.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &b.name, Delete: &types.Delete{Objects: ids}})
	if err != nil || len(out.Deleted) != len(ids) {
		t.Errorf("deleted are %+v, %v", out, err)
	}
	if _, err := b.get("s3/a"); awsCode(err) != "NoSuchKey" {
		t.Errorf("deleted: %v", err)
	}
	if _, err := b.ListBuckets(ctx, &s3.ListBucketsInput{}); err != nil {
		t.Errorf("list of buckets: %v", err)
	}
}

// multipart stores an object in parts, and reads a range of it.
func (b *awsBucket) multipart() {
	t, ctx, key := b.t, b.t.Context(), "parts"
	made, err := b.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &b.name, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	data := noise(9 << 20)
	var parts []types.CompletedPart
	for i, part := range [][]byte{data[:5<<20], data[5<<20:]} {
		out, err := b.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &b.name, Key: &key, UploadId: made.UploadId, PartNumber: aws.Int32(int32(i + 1)), Body: bytes.NewReader(part),
		})
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, types.CompletedPart{ETag: out.ETag, PartNumber: aws.Int32(int32(i + 1))})
	}
	if _, err := b.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &b.name, Key: &key, UploadId: made.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.get(key); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	out, err := b.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key, Range: aws.String("bytes=5242879-5242881")})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	if got, err := io.ReadAll(out.Body); err != nil || !bytes.Equal(got, data[5<<20-1:5<<20+2]) {
		t.Errorf("a range is %x, %v", got, err)
	}
}

// links reads a page by a presigned link, which does nothing in a browser, and not by a
// link that was changed.
func (b *awsBucket) links(n *nodetest.Node) {
	t, ctx := b.t, b.t.Context()
	key, page := "page", "<script>alert(1)</script>"
	if _, err := b.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.name, Key: &key, Body: strings.NewReader(page), ContentType: aws.String("text/html"),
	}); err != nil {
		t.Fatal(err)
	}
	link, err := s3.NewPresignClient(b.Client).PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key},
		s3.WithPresignExpires(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		link string
		want int
	}{
		"the link":           {link.URL, 200},
		"another key":        {strings.Replace(link.URL, "/page?", "/parts?", 1), 403},
		"without the prefix": {strings.Replace(link.URL, n.URL()+"/s3", n.URL(), 1), 404},
		"a longer life":      {strings.Replace(link.URL, "X-Amz-Expires=60", "X-Amz-Expires=600", 1), 403},
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, test.link, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != test.want || (string(text) == page) != (test.want == 200) {
			t.Errorf("%s: %d %s, %v", name, resp.StatusCode, text, err)
		}
		if policy := resp.Header.Get("Content-Security-Policy"); test.want != 404 && !strings.HasPrefix(policy, "sandbox;") {
			t.Errorf("%s has the policy %q", name, policy)
		}
	}
}
