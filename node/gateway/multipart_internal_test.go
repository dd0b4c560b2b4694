package gateway

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"berth/fsm/command"
)

// TestCompletionIsRepeatable answers a completion again as the first time: after the answer
// was lost, and after a refusal whose reason has gone.
func TestCompletionIsRepeatable(t *testing.T) {
	b := newBench(t)
	p := b.upload("a", "whole")
	in := &s3.CompleteMultipartUploadInput{
		Bucket: b.bucket(), Key: new("a"), UploadId: p.upload,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: p.parts},
	}
	b.lost = true
	if _, _, err := b.CompleteMultipartUpload(b.ctx, in); err == nil {
		t.Fatal("no answer was lost")
	}
	out, _, err := b.CompleteMultipartUpload(b.ctx, in)
	o, ok := b.Machine.View().Object(b.Actor.Org, "a")
	if err != nil || !ok || *out.ETag != `"`+o.Tag()+`"` || o.Parts != 1 {
		t.Errorf("again it is %+v, %v; the object is %+v", out, err, o)
	}
	in.MultipartUpload.Parts = append(in.MultipartUpload.Parts, types.CompletedPart{PartNumber: new(int32(2)), ETag: new("x")})
	if _, _, err := b.CompleteMultipartUpload(b.ctx, in); codeOf(err) != "NoSuchUpload" {
		t.Errorf("with other parts: %v", err)
	}
	limit := func(objects int) {
		b.Must(command.SetBucketLimits{Actor: command.Actor{Root: true}, Org: b.Actor.Org, MaxObjects: objects})
	}
	p = b.upload("b", "whole")
	in.Key, in.UploadId, in.MultipartUpload.Parts = new("b"), p.upload, p.parts
	limit(1)
	if _, _, err := b.CompleteMultipartUpload(b.ctx, in); codeOf(err) != "QuotaExceeded" {
		t.Errorf("with too many objects: %v", err)
	}
	limit(0)
	if _, _, err := b.CompleteMultipartUpload(b.ctx, in); err != nil || !b.has("b") {
		t.Errorf("once there is space: %v", err)
	}
}
