package gateway

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"berth/compute"
	"berth/fsm/command"
	"berth/node/objects"
)

// quoted returns an ETag as headers have it.
func quoted(tag string) *string { return new(`"` + tag + `"`) }

// unquoted returns the value of a condition.
func unquoted(tag *string) string {
	if tag == nil {
		return ""
	}
	return strings.Trim(*tag, `"`)
}

// text returns the value at p, "" for nil.
func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// orNil returns nil for "".
func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// checkKey refuses keys that no object can have.
func checkKey(key *string) error {
	if len(text(key)) > compute.MaxObjectKey {
		return s3err.GetKeyTooLongErr(int64(len(*key)), compute.MaxObjectKey)
	}
	if bad := compute.BadObjectKey(text(key)); bad != "" {
		return apiError("InvalidArgument", "The key cannot be used: "+bad+".", http.StatusBadRequest)
	}
	return nil
}

// find returns an object of the caller.
func (s *store) find(ctx context.Context, bucket, key *string) (caller, *compute.Bucket, *compute.Object, error) {
	who, err := s.enter(ctx, bucket)
	if err != nil {
		return who, nil, nil, err
	}
	b := who.view.Bucket(who.actor.Org)
	o, ok := who.view.Object(who.actor.Org, text(key))
	if b == nil || !ok {
		return who, nil, nil, s3err.GetAPIError(s3err.ErrNoSuchKey)
	}
	return who, b, o, nil
}

// bucketOf returns the bucket of the caller, which may have to be made.
func (s *store) bucketOf(ctx context.Context, who *caller) (*compute.Bucket, error) {
	b, err := s.cfg.Objects.Bucket(ctx, &who.view, who.actor)
	if err != nil {
		return nil, s.fail(err)
	}
	return b, nil
}

// checked returns a body whose checksum is compared at its end, if the header has one.
// One that follows the body is checked where the body is read.
func checked(body io.Reader, sums map[utils.HashType]*string) (io.Reader, error) {
	if body == nil {
		return strings.NewReader(""), nil
	}
	if trailing, ok := body.(middlewares.ChecksumReader); ok && trailing.Algorithm() != "" {
		return body, nil
	}
	for kind, sum := range sums {
		if sum != nil && *sum != "" {
			return utils.NewHashReader(body, *sum, kind)
		}
	}
	return body, nil
}

// within returns a body that ends with an error where it has more bytes than there is
// space. One that is said to have more is refused.
func within(body io.Reader, length *int64, space int64) (io.Reader, error) {
	if length != nil && *length > space {
		return nil, s3err.GetAPIError(s3err.ErrQuotaExceeded)
	}
	return compute.Bounded(body, space, s3err.GetAPIError(s3err.ErrQuotaExceeded)), nil
}

// PutObject stores an object.
func (s *store) PutObject(
	ctx context.Context, in s3response.PutObjectInput,
) (out s3response.PutObjectOutput, err error) {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return out, err
	}
	if err := checkKey(in.Key); err != nil {
		return out, err
	}
	if text(in.Tagging) != "" {
		return out, s3err.GetAPIError(s3err.ErrNotImplemented)
	}
	if err := who.checkPut(*in.Key, in.IfMatch, in.IfNoneMatch); err != nil {
		return out, err
	}
	b, err := s.bucketOf(ctx, &who)
	if err != nil {
		return out, err
	}
	body, err := checked(in.Body, map[utils.HashType]*string{
		utils.HashTypeCRC32: in.ChecksumCRC32, utils.HashTypeCRC32C: in.ChecksumCRC32C,
		utils.HashTypeSha1:   in.ChecksumSHA1,
		utils.HashTypeSha256: in.ChecksumSHA256, utils.HashTypeCRC64NVME: in.ChecksumCRC64NVME,
	})
	if err != nil {
		return out, err
	}
	meta := &compute.ObjectMeta{
		Type: text(in.ContentType), Encoding: text(in.ContentEncoding), Language: text(in.ContentLanguage),
		Position: text(in.ContentDisposition), Cache: text(in.CacheControl), Expires: text(in.Expires), Custom: in.Metadata,
	}
	if body, err = within(body, in.ContentLength, who.view.ObjectSpace(who.actor, *in.Key)); err != nil {
		return out, err
	}
	content, err := s.cfg.Objects.Write(ctx, objects.Write{Actor: who.actor, Bucket: b, Body: body, Meta: meta})
	if err != nil {
		return out, s.fail(err)
	}
	defer s.forget(who, content)
	if in.ContentLength != nil && *in.ContentLength != content.Size {
		return out, s3err.GetAPIError(s3err.ErrIncompleteBody)
	}
	cmd := command.PutObject{
		Op: s.op(who), Actor: who.actor, Object: recordOf(*in.Key, content, meta),
		Upload: content.Upload, Revision: content.Parts,
		Absent: text(in.IfNoneMatch) == "*", Match: unquoted(in.IfMatch),
	}
	if _, err := s.propose(cmd); err != nil {
		return out, err
	}
	return s3response.PutObjectOutput{ETag: *quoted(cmd.Object.Tag()), Size: &content.Size}, nil
}

// checkPut refuses a write whose conditions do not hold.
func (c caller) checkPut(key string, match, none *string) error {
	o, exists := c.view.Object(c.actor.Org, key)
	tag := ""
	if exists {
		tag = o.Tag()
	}
	if match != nil {
		match = new(unquoted(match))
		if *match == "*" {
			match = &tag // The library takes it for an ETag.
		}
	}
	if none != nil {
		none = new(unquoted(none))
	}
	return backend.EvaluateObjectPutPreconditions(tag, match, none, exists)
}

// recordOf returns the record of content.
func recordOf(key string, c compute.Content, meta *compute.ObjectMeta) compute.Object {
	o := compute.Object{Key: key, Size: c.Size, ETag: c.ETag, Blob: c.Blob, Whole: c.Whole}
	if meta.Short() {
		o.Type = meta.Type
	}
	return o
}

// conditions are those of a read.
func conditions(o *compute.Object, match, none *string, since, until *time.Time) error {
	return backend.EvaluatePreconditions(o.Tag(), o.At.Time().Truncate(time.Second), backend.PreConditions{
		IfMatch: match, IfNoneMatch: none, IfModSince: since, IfUnmodeSince: until,
	})
}

// defaultType is the media type of an object of which nobody knows it.
const defaultType = "binary/octet-stream"

// HeadObject describes an object.
func (s *store) HeadObject(ctx context.Context, in *s3.HeadObjectInput) (*s3.HeadObjectOutput, error) {
	r, err := s.findMatching(ctx, in)
	return r.head, err
}

// GetObjectTagging returns no tags: objects have none. AWS CLI 2 asks for those of each object that it
// copies in parts.
func (s *store) GetObjectTagging(ctx context.Context, bucket, key, _ string) (map[string]string, error) {
	_, _, _, err := s.find(ctx, &bucket, &key)
	return nil, err
}

// reading is the read of an object before its bytes are read.
type reading struct {
	bucket *compute.Bucket
	object *compute.Object
	from   int64 // The first byte that is asked for.
	head   *s3.HeadObjectOutput
}

// findMatching finds the object that is asked for, if the conditions hold.
func (s *store) findMatching(ctx context.Context, in *s3.HeadObjectInput) (r reading, err error) {
	_, b, o, err := s.find(ctx, in.Bucket, in.Key)
	if err != nil {
		return r, err
	}
	if err := conditions(o, in.IfMatch, in.IfNoneMatch, in.IfModifiedSince, in.IfUnmodifiedSince); err != nil {
		return r, err
	}
	meta, err := s.cfg.Objects.Meta(ctx, b, o)
	if err != nil {
		return r, s.fail(err)
	}
	from, length, part, err := backend.ParseObjectRange(o.Size, text(in.Range))
	if err != nil {
		return r, err
	}
	head := &s3.HeadObjectOutput{
		AcceptRanges: new("bytes"), ContentLength: &length, ETag: quoted(o.Tag()), LastModified: new(o.At.Time()),
		ContentType: new(orDefault(meta.Type)), ContentEncoding: orNil(meta.Encoding), ContentLanguage: orNil(meta.Language),
		ContentDisposition: orNil(meta.Position), CacheControl: orNil(meta.Cache), ExpiresString: orNil(meta.Expires),
		Metadata: maps.Clone(meta.Custom), StorageClass: types.StorageClassStandard,
	}
	if part {
		head.ContentRange = rangeOf(from, length, o.Size)
	}
	return reading{b, o, from, head}, nil
}

func orDefault(kind string) string {
	if kind == "" {
		return defaultType
	}
	return kind
}

// GetObject returns an object, or a part of it.
func (s *store) GetObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	r, err := s.findMatching(ctx, &s3.HeadObjectInput{
		Bucket: in.Bucket, Key: in.Key, Range: in.Range, IfMatch: in.IfMatch, IfNoneMatch: in.IfNoneMatch,
		IfModifiedSince: in.IfModifiedSince, IfUnmodifiedSince: in.IfUnmodifiedSince,
	})
	if err != nil {
		return nil, err
	}
	h := r.head
	return &s3.GetObjectOutput{
		AcceptRanges: h.AcceptRanges, ContentLength: h.ContentLength, ContentRange: h.ContentRange,
		ETag: h.ETag, LastModified: h.LastModified, ContentType: h.ContentType, ContentEncoding: h.ContentEncoding,
		ContentLanguage: h.ContentLanguage, ContentDisposition: h.ContentDisposition, CacheControl: h.CacheControl,
		ExpiresString: h.ExpiresString, Metadata: h.Metadata, StorageClass: h.StorageClass,
		Body: s.body(r.bucket, r.object, r.from, *h.ContentLength),
	}, nil
}

// body returns a reader of a part of an object, which the protocol's server reads after
// the call.
func (s *store) body(b *compute.Bucket, o *compute.Object, from, length int64) io.ReadCloser {
	ctx, cancel := context.WithCancel(s.life)
	return &body{end: cancel, copy: func(w io.Writer) (int64, error) {
		to := bodyWriter{Writer: w}
		err := s.cfg.Objects.Copy(ctx, b, o, &to, from, length)
		if err != nil && !to.failed && ctx.Err() == nil {
			s.logger.Warn("object ended early", "err", err)
		}
		return to.n, err
	}}
}

// DeleteObject deletes an object. One that is not there is as good.
func (s *store) DeleteObject(ctx context.Context, in *s3.DeleteObjectInput) (*s3.DeleteObjectOutput, error) {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return nil, err
	}
	o, ok := who.view.Object(who.actor.Org, text(in.Key))
	if !ok {
		return &s3.DeleteObjectOutput{}, nil
	}
	if err := s.remove(who, o, deletion{in.IfMatch, in.IfMatchLastModifiedTime, in.IfMatchSize}); err != nil {
		return nil, err
	}
	return &s3.DeleteObjectOutput{}, nil
}

// deletion has the conditions of a deletion; nil for none.
type deletion struct {
	match *string
	at    *time.Time
	size  *int64
}

// remove deletes an object as it was seen, if the conditions hold. Without one it deletes
// any object with the key.
func (s *store) remove(who caller, o *compute.Object, c deletion) error {
	cmd := command.DeleteObjects{Op: s.op(who), Actor: who.actor, Keys: []string{o.Key}}
	if unquoted(c.match) == "*" {
		c.match = nil // It is there.
	}
	if c != (deletion{}) {
		cmd.Match = o.Tag()
		conditions := backend.ObjectDeletePreconditions{IfMatchLastModTime: c.at, IfMatchSize: c.size}
		if c.match != nil {
			conditions.IfMatch = new(unquoted(c.match))
		}
		if err := backend.EvaluateObjectDeletePreconditions(o.Tag(), o.At.Time(), o.Size, conditions); err != nil {
			return err
		}
	}
	result, _, err := s.proposed(cmd)
	if err == nil && cmd.Match != "" && result.Count == 0 {
		err = s3err.GetPreconditionFailedErr(s3err.ConditionIfMatch) // It was replaced meanwhile.
	}
	return err
}

// DeleteObjects deletes several objects at once.
func (s *store) DeleteObjects(ctx context.Context, in *s3.DeleteObjectsInput) (out s3response.DeleteResult, err error) {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return out, err
	}
	var keys []string
	for _, named := range in.Delete.Objects {
		c := deletion{named.ETag, named.LastModifiedTime, named.Size}
		o, ok := who.view.Object(who.actor.Org, text(named.Key))
		switch {
		case c != (deletion{}) && !ok: // It is not there: nothing that comes meanwhile is meant.
		case c != (deletion{}):
			err := s.remove(who, o, c)
			if e, ok := errors.AsType[s3err.APIError](err); ok && e.HTTPStatusCode >= http.StatusInternalServerError {
				return s3response.DeleteResult{}, err // The next ones would wait as long.
			}
			if err != nil {
				out.Error = append(out.Error, errorOf(named.Key, err))
				continue
			}
		case compute.BadObjectKey(text(named.Key)) == "": // No object can have a bad key.
			keys = append(keys, *named.Key)
		}
		out.Deleted = append(out.Deleted, types.DeletedObject{Key: named.Key})
	}
	for len(keys) > 0 {
		n := fitting(keys)
		if _, err = s.propose(command.DeleteObjects{Op: s.op(who), Actor: who.actor, Keys: keys[:n]}); err != nil {
			return s3response.DeleteResult{}, err
		}
		keys = keys[n:]
	}
	return out, nil
}

// fitting returns how many of the first keys fit into one command.
func fitting(keys []string) int {
	bytes := 0
	for i, key := range keys {
		if bytes += len(key); bytes > command.MaxCommand/2 {
			return max(i, 1)
		}
	}
	return len(keys)
}

// errorOf returns why an object was not deleted.
func errorOf(key *string, err error) types.Error {
	e, ok := errors.AsType[s3err.S3Error](err)
	if !ok {
		e = s3err.GetAPIError(s3err.ErrInternalError)
	}
	base := e.BaseError()
	return types.Error{Key: key, Code: &base.Code, Message: &base.Description}
}

// CopyObject makes an object of another one of the bucket.
func (s *store) CopyObject(
	ctx context.Context, in s3response.CopyObjectInput,
) (out s3response.CopyObjectOutput, err error) {
	fromBucket, fromKey, _, err := backend.ParseCopySource(text(in.CopySource))
	if err != nil {
		return out, err
	}
	if err := checkKey(in.Key); err != nil {
		return out, err
	}
	if _, err := s.enter(ctx, in.Bucket); err != nil {
		return out, err
	}
	who, b, o, err := s.find(ctx, &fromBucket, &fromKey)
	if err != nil {
		return out, err
	}
	err = conditions(o, in.CopySourceIfMatch, in.CopySourceIfNoneMatch,
		in.CopySourceIfModifiedSince, in.CopySourceIfUnmodifiedSince)
	if errors.Is(err, s3err.GetAPIError(s3err.ErrNotModified)) {
		err = s3err.GetPreconditionFailedErr(s3err.ConditionIfNoneMatch)
	}
	if err != nil {
		return out, err
	}
	match, none := sent(ctx, sentMatch), sent(ctx, sentNoneMatch)
	if err := who.checkPut(*in.Key, match, none); err != nil {
		return out, err
	}
	made := *o
	made.Key = *in.Key
	if in.MetadataDirective == types.MetadataDirectiveReplace {
		meta := &compute.ObjectMeta{
			Type: text(in.ContentType), Encoding: text(in.ContentEncoding), Language: text(in.ContentLanguage),
			Position: text(in.ContentDisposition), Cache: text(in.CacheControl), Expires: text(in.Expires), Custom: in.Metadata,
		}
		if made.Blob, made.Whole, err = s.cfg.Objects.Describe(ctx, b, o, meta); err != nil {
			return out, s.fail(err)
		}
		made.Type = ""
		if meta.Short() {
			made.Type = meta.Type
		}
	} else if fromKey == *in.Key {
		return out, s3err.GetAPIError(s3err.ErrInvalidCopyDest)
	}
	index, err := s.propose(command.PutObject{
		Op: s.op(who), Actor: who.actor, Object: made, From: o.Key, FromBlob: o.Blob,
		Absent: none != nil, Match: unquoted(match),
	})
	if err != nil {
		return out, err
	}
	at := o.At
	if view, err := s.cfg.Wait(ctx, index); err == nil {
		at = view.Now()
	}
	out.CopyObjectResult = &s3response.CopyObjectResult{ETag: quoted(made.Tag()), LastModified: new(at.Time())}
	return out, nil
}

// GetObjectAttributes describes an object in other words.
func (s *store) GetObjectAttributes(
	ctx context.Context, in *s3.GetObjectAttributesInput,
) (out s3response.GetObjectAttributesResponse, err error) {
	_, _, o, err := s.find(ctx, in.Bucket, in.Key)
	if err != nil {
		return out, err
	}
	return s3response.GetObjectAttributesResponse{
		ETag: new(o.Tag()), ObjectSize: &o.Size, StorageClass: types.StorageClassStandard, LastModified: new(o.At.Time()),
	}, nil
}
