package gateway

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"berth/compute"
	"berth/fsm/command"
	"berth/node/objects"
)

// CreateMultipartUpload begins an upload in parts.
func (s *store) CreateMultipartUpload(
	ctx context.Context, in s3response.CreateMultipartUploadInput,
) (out s3response.InitiateMultipartUploadResult, err error) {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return out, err
	}
	if err := checkKey(in.Key); err != nil {
		return out, err
	}
	b, err := s.bucketOf(ctx, &who)
	if err != nil {
		return out, err
	}
	meta := &compute.ObjectMeta{
		Type: text(in.ContentType), Encoding: text(in.ContentEncoding), Language: text(in.ContentLanguage),
		Position: text(in.ContentDisposition), Cache: text(in.CacheControl), Expires: text(in.Expires), Custom: in.Metadata,
	}
	u := compute.ObjectUpload{ID: compute.ObjectUploadID{UUID: s.cfg.NewID()}, Key: *in.Key}
	if u.Meta, err = s.cfg.Objects.SealMeta(b, meta); err != nil {
		return out, s.fail(err)
	}
	if _, err := s.propose(command.StartObjectUpload{Op: s.op(who), Actor: who.actor, Upload: u}); err != nil {
		return out, err
	}
	return s3response.InitiateMultipartUploadResult{Bucket: *in.Bucket, Key: *in.Key, UploadId: u.ID.String()}, nil
}

// UploadPart stores a part.
func (s *store) UploadPart(ctx context.Context, in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	body, err := checked(in.Body, map[utils.HashType]*string{
		utils.HashTypeCRC32: in.ChecksumCRC32, utils.HashTypeCRC32C: in.ChecksumCRC32C, utils.HashTypeSha1: in.ChecksumSHA1,
		utils.HashTypeSha256: in.ChecksumSHA256, utils.HashTypeCRC64NVME: in.ChecksumCRC64NVME,
	})
	if err != nil {
		return nil, err
	}
	p, err := s.part(ctx, in.Bucket, in.Key, in.UploadId, in.PartNumber, body, in.ContentLength)
	if err != nil {
		return nil, err
	}
	return &s3.UploadPartOutput{ETag: quoted(p.Tag())}, nil
}

// part stores the part of an upload that a body has.
func (s *store) part(
	ctx context.Context, bucket, key, upload *string, number *int32, body io.Reader, length *int64,
) (p compute.ObjectPart, err error) {
	who, err := s.enter(ctx, bucket)
	if err != nil {
		return p, err
	}
	u, err := who.uploadOf(upload, key)
	if err != nil {
		return p, err
	}
	b, err := s.bucketOf(ctx, &who)
	if err != nil {
		return p, err
	}
	if body, err = within(body, length, who.view.ObjectPartSpace(u, int(*number))); err != nil {
		return p, err
	}
	content, err := s.cfg.Objects.Write(ctx, objects.Write{Actor: who.actor, Bucket: b, Body: body})
	if err != nil {
		return p, s.fail(err)
	}
	defer s.forget(who, content)
	if length != nil && *length != content.Size {
		return p, s3err.GetAPIError(s3err.ErrIncompleteBody)
	}
	p = compute.ObjectPart{
		Upload: u.ID, Number: int(*number), Size: content.Size, ETag: content.ETag, Blob: content.Blob, Whole: content.Whole,
	}
	_, err = s.propose(command.PutObjectPart{Op: s.op(who), Actor: who.actor, Part: p})
	return p, err
}

// forget ends the upload that kept a content which was long to come, unless that was
// published. If this fails, it expires.
func (s *store) forget(who caller, content compute.Content) {
	if !content.Upload.IsZero() {
		_, _ = s.propose(command.AbortObjectUpload{Actor: who.actor, Upload: content.Upload})
	}
}

// UploadPartCopy makes a part of another object's bytes.
func (s *store) UploadPartCopy(
	ctx context.Context, in *s3.UploadPartCopyInput,
) (out s3response.CopyPartResult, err error) {
	bucket, key, _, err := backend.ParseCopySource(text(in.CopySource))
	if err != nil {
		return out, err
	}
	_, b, o, err := s.find(ctx, &bucket, &key)
	if err != nil {
		return out, err
	}
	err = conditions(o, in.CopySourceIfMatch, in.CopySourceIfNoneMatch,
		in.CopySourceIfModifiedSince, in.CopySourceIfUnmodifiedSince)
	if err != nil {
		return out, err
	}
	from, length, err := backend.ParseCopySourceRange(o.Size, text(in.CopySourceRange))
	if err != nil {
		return out, err
	}
	body := s.body(b, o, from, length)
	defer body.Close()
	p, err := s.part(ctx, in.Bucket, in.Key, in.UploadId, in.PartNumber, body, &length)
	if err != nil {
		return out, err
	}
	return s3response.CopyPartResult{ETag: quoted(p.Tag()), LastModified: s.cfg.Keys.Now()}, nil
}

// CompleteMultipartUpload makes an object of parts.
func (s *store) CompleteMultipartUpload(
	ctx context.Context, in *s3.CompleteMultipartUploadInput,
) (out s3response.CompleteMultipartUploadResult, _ string, err error) {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return out, "", err
	}
	op := who.completion(in)
	if first, known := who.view.Recall(op); known && first.Refusal == nil { // The upload is gone.
		return s3response.CompleteMultipartUploadResult{
			Bucket: in.Bucket, Key: in.Key, ETag: quoted(joinedTag(in.MultipartUpload.Parts)),
		}, "", nil
	}
	u, err := who.uploadOf(in.UploadId, in.Key)
	if err != nil {
		return out, "", err
	}
	b, err := s.bucketOf(ctx, &who)
	if err != nil {
		return out, "", err
	}
	if err := who.checkPut(u.Key, in.IfMatch, in.IfNoneMatch); err != nil {
		return out, "", err
	}
	parts, err := who.chosen(u, in.MultipartUpload.Parts)
	if err != nil {
		return out, "", err
	}
	meta, err := s.cfg.Objects.OpenMeta(b, u.Meta)
	if err != nil {
		return out, "", s.fail(err)
	}
	content, err := s.cfg.Objects.Join(ctx, b, parts, meta)
	if err != nil {
		return out, "", s.fail(err)
	}
	o := recordOf(u.Key, content, meta)
	o.Parts = int32(len(parts))
	cmd := command.PutObject{
		Op: op, Actor: who.actor, Object: o, Upload: u.ID, Revision: u.Revision,
		Absent: text(in.IfNoneMatch) == "*", Match: unquoted(in.IfMatch),
	}
	result, _, err := s.proposed(cmd)
	if err != nil && result.Refusal != nil && result.Repeat { // An earlier try was refused. The reason may have gone.
		cmd.Op = s.op(who)
		_, _, err = s.proposed(cmd)
	}
	if err != nil {
		return out, "", err
	}
	return s3response.CompleteMultipartUploadResult{Bucket: in.Bucket, Key: in.Key, ETag: quoted(o.Tag())}, "", nil
}

// completion names the command that completes an upload with some parts, so that a repeat
// gets the first answer.
func (c caller) completion(in *s3.CompleteMultipartUploadInput) command.Op {
	sum := sha256.New()
	fmt.Fprintf(sum, "complete\x00%q\x00%q", text(in.UploadId), text(in.Key))
	for _, p := range in.MultipartUpload.Parts {
		number := int32(0)
		if p.PartNumber != nil {
			number = *p.PartNumber
		}
		fmt.Fprintf(sum, "\x00%d\x00%q", number, unquoted(p.ETag))
	}
	op := command.Op{Org: c.actor.Org}
	copy(op.ID.UUID[:], sum.Sum(nil))
	op.ID.UUID[6] = op.ID.UUID[6]&0x0f | 0x80 // Version 8: a UUID of a hash.
	op.ID.UUID[8] = op.ID.UUID[8]&0x3f | 0x80
	return op
}

// joinedTag returns the ETag of the object that parts are together.
func joinedTag(parts []types.CompletedPart) string {
	sums := md5.New() //nolint:gosec // As S3 has it.
	for _, p := range parts {
		sum, _ := hex.DecodeString(unquoted(p.ETag)) // It was a part's.
		sums.Write(sum)
	}
	o := compute.Object{ETag: compute.ETag(sums.Sum(nil)), Parts: int32(len(parts))}
	return o.Tag()
}

// chosen returns the parts of an upload that a client names.
func (c caller) chosen(u *compute.ObjectUpload, named []types.CompletedPart) ([]*compute.ObjectPart, error) {
	known := map[int]*compute.ObjectPart{}
	for p := range c.view.ObjectParts(u.ID, 0) {
		known[p.Number] = p
	}
	var parts []*compute.ObjectPart
	last := 0
	for _, n := range named {
		if n.PartNumber == nil || n.ETag == nil {
			return nil, s3err.GetAPIError(s3err.ErrMalformedXML)
		}
		number := int(*n.PartNumber)
		if number <= last {
			return nil, s3err.GetAPIError(s3err.ErrInvalidPartOrder)
		}
		last = number
		p, ok := known[number]
		if !ok || unquoted(n.ETag) != p.Tag() {
			return nil, s3err.GetInvalidPartErr(u.ID.String(), *n.PartNumber, *n.ETag)
		}
		parts = append(parts, p)
	}
	for _, p := range parts[:max(0, len(parts)-1)] {
		if p.Size < compute.MinObjectPart {
			return nil, s3err.GetEntityTooSmallErr(p.Size, compute.MinObjectPart)
		}
	}
	if len(parts) == 0 {
		return nil, s3err.GetAPIError(s3err.ErrMalformedXML)
	}
	return parts, nil
}

// AbortMultipartUpload ends an upload.
func (s *store) AbortMultipartUpload(ctx context.Context, in *s3.AbortMultipartUploadInput) error {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return err
	}
	u, err := who.uploadOf(in.UploadId, in.Key)
	if err != nil {
		return err
	}
	_, err = s.propose(command.AbortObjectUpload{Op: s.op(who), Actor: who.actor, Upload: u.ID})
	return err
}

// ListParts lists the parts of an upload.
func (s *store) ListParts(ctx context.Context, in *s3.ListPartsInput) (out s3response.ListPartsResult, err error) {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return out, err
	}
	u, err := who.uploadOf(in.UploadId, in.Key)
	if err != nil {
		return out, err
	}
	after, _ := strconv.Atoi(text(in.PartNumberMarker)) // Anything else is the beginning.
	out = s3response.ListPartsResult{
		Bucket: *in.Bucket, Key: u.Key, UploadID: u.ID.String(), StorageClass: types.StorageClassStandard,
		PartNumberMarker: after, MaxParts: int(*in.MaxParts),
	}
	for p := range who.view.ObjectParts(u.ID, after) {
		if len(out.Parts) == out.MaxParts {
			out.IsTruncated = true
			break
		}
		out.Parts = append(out.Parts, s3response.Part{
			PartNumber: p.Number, LastModified: p.At.Time(), ETag: *quoted(p.Tag()), Size: p.Size,
		})
		out.NextPartNumberMarker = p.Number
	}
	return out, nil
}

// ListMultipartUploads lists the uploads that are not complete.
func (s *store) ListMultipartUploads(
	ctx context.Context, in *s3.ListMultipartUploadsInput,
) (out s3response.ListMultipartUploadsResult, err error) {
	who, err := s.enter(ctx, in.Bucket)
	if err != nil {
		return out, err
	}
	out = s3response.ListMultipartUploadsResult{
		Bucket: *in.Bucket, Prefix: text(in.Prefix), MaxUploads: compute.MaxObjectUploads,
	}
	for u := range who.view.ObjectUploads(who.actor.Org) {
		if u.Key != "" && len(u.Key) >= len(out.Prefix) && u.Key[:len(out.Prefix)] == out.Prefix {
			out.Uploads = append(out.Uploads, s3response.Upload{
				Key: u.Key, UploadID: u.ID.String(), Initiated: u.CreatedAt.Time(), StorageClass: types.StorageClassStandard,
			})
		}
	}
	return out, nil
}
