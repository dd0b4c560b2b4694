package gateway

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"berth/compute"
)

// rangeOf returns the header Content-Range.
func rangeOf(from, length, size int64) *string {
	return new(fmt.Sprintf("bytes %d-%d/%d", from, from+length-1, size))
}

// page is a part of a list.
type page struct {
	objects  []s3response.Object
	prefixes []types.CommonPrefix
	last     string // The next page begins behind it.
	more     bool
}

// list returns up to limit objects and common prefixes behind a key.
func (c caller) list(prefix, delimiter, after string, limit int32) (p page) {
	from := prefix
	if after != "" {
		from = max(from, after+"\x00")
		if after == commonPrefix(after, prefix, delimiter) {
			from = max(from, beyond(after))
		}
	}
	for int32(len(p.objects)+len(p.prefixes)) <= limit {
		o, common := c.next(prefix, delimiter, from)
		if o == nil {
			return p
		}
		if int32(len(p.objects)+len(p.prefixes)) == limit {
			p.more = limit > 0
			return p
		}
		if common != "" {
			p.prefixes = append(p.prefixes, types.CommonPrefix{Prefix: &common})
			p.last, from = common, beyond(common)
			continue
		}
		p.objects = append(p.objects, s3response.Object{
			ETag: quoted(o.Tag()), Key: &o.Key, LastModified: new(o.At.Time()), Size: &o.Size,
			StorageClass: types.ObjectStorageClassStandard,
		})
		p.last, from = o.Key, o.Key+"\x00"
	}
	return p
}

// next returns the first object from a key on, and the common prefix that it belongs
// to.
func (c caller) next(prefix, delimiter, from string) (o *compute.Object, common string) {
	for o := range c.view.Objects(c.actor.Org, from) {
		if !strings.HasPrefix(o.Key, prefix) {
			return nil, ""
		}
		return o, commonPrefix(o.Key, prefix, delimiter)
	}
	return nil, ""
}

// commonPrefix returns the common prefix that a key belongs to, which is longer than the
// prefix that is asked for; "" for none.
func commonPrefix(key, prefix, delimiter string) string {
	rest, below := strings.CutPrefix(key, prefix)
	at := strings.Index(rest, delimiter)
	if !below || delimiter == "" || at < 0 {
		return ""
	}
	return prefix + rest[:at+len(delimiter)]
}

// beyond returns the first key behind all that begin with a prefix. No key has the byte
// 0xff.
func beyond(prefix string) string { return prefix + "\xff" }

// ListObjectsV2 lists objects.
func (s *store) ListObjectsV2(
	ctx context.Context, in *s3.ListObjectsV2Input,
) (out s3response.ListObjectsV2Result, err error) {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return out, err
	}
	after := text(in.StartAfter)
	if text(in.ContinuationToken) != "" {
		after = *in.ContinuationToken
	}
	p := who.list(text(in.Prefix), text(in.Delimiter), after, *in.MaxKeys)
	out = s3response.ListObjectsV2Result{
		Name: in.Bucket, Prefix: in.Prefix,
		StartAfter: orNil(text(in.StartAfter)), ContinuationToken: orNil(text(in.ContinuationToken)),
		KeyCount: new(int32(len(p.objects) + len(p.prefixes))), MaxKeys: in.MaxKeys, Delimiter: orNil(text(in.Delimiter)),
		IsTruncated: &p.more, Contents: p.objects, CommonPrefixes: p.prefixes,
	}
	if p.more {
		out.NextContinuationToken = &p.last
	}
	return out, nil
}

// ListObjects lists objects as older clients ask for them.
func (s *store) ListObjects(
	ctx context.Context, in *s3.ListObjectsInput,
) (out s3response.ListObjectsResult, err error) {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return out, err
	}
	p := who.list(text(in.Prefix), text(in.Delimiter), text(in.Marker), *in.MaxKeys)
	out = s3response.ListObjectsResult{
		Name: in.Bucket, Prefix: in.Prefix, Marker: in.Marker, MaxKeys: in.MaxKeys, Delimiter: orNil(text(in.Delimiter)),
		IsTruncated: &p.more, Contents: p.objects, CommonPrefixes: p.prefixes,
	}
	if p.more {
		out.NextMarker = &p.last
	}
	return out, nil
}

// uploadOf returns an upload of the caller.
func (c caller) uploadOf(id, key *string) (*compute.ObjectUpload, error) {
	parsed, err := compute.ParseObjectUploadID(text(id))
	if err != nil {
		return nil, s3err.GetNoSuchUploadErr(text(id))
	}
	u, ok := c.view.ObjectUpload(c.actor.Org, parsed)
	if !ok || u.Key == "" || u.Key != text(key) {
		return nil, s3err.GetNoSuchUploadErr(text(id))
	}
	return u, nil
}
