package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"berth/compute"
)

const (
	partBytes = 32 << 20 // Bytes of a part, if a file is stored in parts.
	pageKeys  = 1000
	abortTime = 5 * time.Second
	askTime   = 5 * time.Minute // More than the patience of a mount.
	maxCuts   = 10              // Answers to one read that end early.
)

// bucket is the bucket as the file system uses it.
type bucket struct {
	name string
	s3   *s3.Client
	down *outage

	code    context.Context //nolint:containedctx // Lives as long as the code that reads.
	endCode context.CancelFunc
}

// object is an object as a list describes it.
type object struct {
	key  string
	size int64
	etag string
	at   time.Time
}

// newBucket returns the bucket of some access.
func newBucket(a *compute.StorageAccess, socket string, wait patience) *bucket {
	given := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: a.Access, SecretAccessKey: a.Secret, SessionToken: a.Token}, nil
	})
	down := &outage{patience: wait}
	code, endCode := context.WithCancel(context.Background())
	return &bucket{name: a.Bucket, down: down, code: code, endCode: endCode, s3: s3.New(s3.Options{
		Region: a.Region, BaseEndpoint: aws.String("http://storage.berth"), UsePathStyle: true, Credentials: given,
		HTTPClient: &http.Client{Transport: down.watch(socket)},
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff, o.RateLimiter = math.MaxInt, maxBackoff, down
		}),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})}
}

// steady returns the context of a read that goes on when a signal interrupts the code that
// waits for it: reads of disks do so too, programs do not expect EINTR, and other code may
// wait for the same block.
func steady(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), askTime)
}

// unsigned leaves the content out of signatures, which a socket of this machine needs
// no protection from.
func unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

// head returns an object.
func (b *bucket) head(ctx context.Context, key string) (object, error) {
	ctx, cancel := steady(ctx)
	defer cancel()
	out, err := b.s3.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: &key})
	if err != nil {
		return object{}, err
	}
	return object{key, aws.ToInt64(out.ContentLength), aws.ToString(out.ETag), aws.ToTime(out.LastModified)}, nil
}

// list returns a page of what is directly below a prefix, and where the next begins.
func (b *bucket) list(
	ctx context.Context, prefix, after string, limit int32,
) (objects []object, dirs []string, next string, err error) {
	ctx, cancel := steady(ctx)
	defer cancel()
	in := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix, Delimiter: aws.String("/"), MaxKeys: &limit}
	if after != "" {
		in.ContinuationToken = &after
	}
	out, err := b.s3.ListObjectsV2(ctx, in)
	if err != nil {
		return nil, nil, "", err
	}
	for _, o := range out.Contents {
		objects = append(objects, object{
			aws.ToString(o.Key), aws.ToInt64(o.Size), aws.ToString(o.ETag), aws.ToTime(o.LastModified),
		})
	}
	for _, p := range out.CommonPrefixes {
		dirs = append(dirs, aws.ToString(p.Prefix))
	}
	return objects, dirs, aws.ToString(out.NextContinuationToken), nil
}

// has reports whether a key begins with the prefix.
func (b *bucket) has(ctx context.Context, prefix string) (bool, error) {
	objects, dirs, _, err := b.list(ctx, prefix, "", 1)
	return len(objects)+len(dirs) > 0, err
}

// read reads a part of one version of an object. Where an answer ends early, it reads
// on.
func (b *bucket) read(ctx context.Context, o object, into []byte, from int64) error {
	ctx, cancel := steady(ctx)
	defer cancel()
	defer context.AfterFunc(b.code, cancel)() // Nobody waits for it then, and files wait to be saved.
	for try := 1; len(into) > 0; try++ {
		n, err := b.readSome(ctx, o, into, from)
		if err == nil {
			return nil
		}
		into, from = into[n:], from+int64(n)
		if _, said := errors.AsType[smithy.APIError](err); said || ctx.Err() != nil || try == maxCuts {
			return err
		}
		if _, over := b.down.GetToken(ctx, 0); over != nil {
			return err
		}
	}
	return nil
}

// readSome reads with one request, and returns how much it read.
func (b *bucket) readSome(ctx context.Context, o object, into []byte, from int64) (int, error) {
	out, err := b.s3.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &b.name, Key: &o.key, IfMatch: &o.etag,
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", from, from+int64(len(into))-1)),
	})
	if err != nil {
		return 0, err
	}
	defer out.Body.Close()
	return io.ReadFull(out.Body, into)
}

// store stores a file whole, and returns its ETag.
func (b *bucket) store(ctx context.Context, key string, from io.ReaderAt, size int64) (string, error) {
	if size <= partBytes {
		out, err := b.s3.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &b.name, Key: &key, Body: io.NewSectionReader(from, 0, size), ContentLength: &size,
		}, unsigned)
		if err != nil {
			return "", err
		}
		return aws.ToString(out.ETag), nil
	}
	made, err := b.s3.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &b.name, Key: &key})
	if err != nil {
		return "", err
	}
	etag, err := b.storeParts(ctx, key, made.UploadId, from, size)
	if err != nil {
		// Otherwise it ends by itself after a while.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
		defer cancel()
		_, _ = b.s3.AbortMultipartUpload(end, &s3.AbortMultipartUploadInput{
			Bucket: &b.name, Key: &key, UploadId: made.UploadId,
		})
	}
	return etag, err
}

// storeParts stores a file in parts.
func (b *bucket) storeParts(
	ctx context.Context, key string, upload *string, from io.ReaderAt, size int64,
) (string, error) {
	part := max(partBytes, (size+compute.MaxObjectParts-1)/compute.MaxObjectParts)
	var parts []types.CompletedPart
	for at := int64(0); at < size; at += part {
		number, length := aws.Int32(int32(len(parts)+1)), min(part, size-at)
		out, err := b.s3.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &b.name, Key: &key, UploadId: upload, PartNumber: number,
			Body: io.NewSectionReader(from, at, length), ContentLength: &length,
		}, unsigned)
		if err != nil {
			return "", err
		}
		parts = append(parts, types.CompletedPart{ETag: out.ETag, PartNumber: number})
	}
	out, err := b.s3.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &b.name, Key: &key, UploadId: upload, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

// remove deletes an object. One that is not there is as good.
func (b *bucket) remove(ctx context.Context, key string) error {
	_, err := b.s3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &key})
	return err
}

// copy makes an object of another one.
func (b *bucket) copy(ctx context.Context, from, to string) error {
	parts := strings.Split(from, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	source := b.name + "/" + strings.Join(parts, "/")
	_, err := b.s3.CopyObject(ctx, &s3.CopyObjectInput{Bucket: &b.name, Key: &to, CopySource: &source})
	return err
}

// errno returns the error of the file system for one of the bucket.
func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	api, ok := errors.AsType[smithy.APIError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return syscall.EINTR
	case !ok:
		return syscall.EIO
	}
	switch api.ErrorCode() {
	case "NoSuchKey", "NotFound", "NoSuchBucket":
		return syscall.ENOENT
	case "PreconditionFailed":
		return syscall.ESTALE
	case "AccessDenied", "Forbidden", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "SignatureDoesNotMatch":
		return syscall.EACCES
	case "QuotaExceeded":
		return syscall.EDQUOT
	case "InsufficientStorage":
		return syscall.ENOSPC
	case "EntityTooLarge":
		return syscall.EFBIG
	case "InvalidArgument":
		return syscall.EINVAL
	}
	return syscall.EIO
}

// toErrno returns the error of the file system for one of the bucket or of this disk.
func toErrno(err error) syscall.Errno {
	if bad, ok := errors.AsType[syscall.Errno](err); ok {
		return bad
	}
	return errno(err)
}
