package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/s3response"
)

// put stores an object.
func (b *bench) put(key, text string) string {
	b.t.Helper()
	out, err := b.PutObject(b.ctx, s3response.PutObjectInput{Bucket: b.bucket(), Key: &key, Body: strings.NewReader(text)})
	if err != nil {
		b.t.Fatalf("put %s: %v", key, err)
	}
	return out.ETag
}

// TestListsBehindMarkers lists what comes behind a marker, which may be the prefix itself, a
// common prefix or a key.
func TestListsBehindMarkers(t *testing.T) {
	b := newBench(t)
	for _, key := range []string{"a/b/1", "a/b/2", "a/c", "b/1", "c"} {
		b.put(key, "x")
	}
	for _, test := range []struct {
		prefix, delimiter, after string
		want                     []string
	}{
		{"a/", "/", "", []string{"a/c", "a/b/"}},
		{"a/", "/", "a/", []string{"a/c", "a/b/"}},
		{"a/", "/", "a/b/", []string{"a/c"}},
		{"a/", "", "a/", []string{"a/b/1", "a/b/2", "a/c"}},
		{"", "/", "a/", []string{"c", "b/"}},
		{"", "/", "a/b/", []string{"c", "a/", "b/"}},
		{"", "/", "b/0", []string{"c", "b/"}},
	} {
		out, err := b.ListObjectsV2(b.ctx, &s3.ListObjectsV2Input{
			Bucket: b.bucket(), Prefix: &test.prefix, Delimiter: &test.delimiter, StartAfter: &test.after, MaxKeys: new(int32(10)),
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range out.Contents {
			got = append(got, *o.Key)
		}
		for _, p := range out.CommonPrefixes {
			got = append(got, *p.Prefix)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
