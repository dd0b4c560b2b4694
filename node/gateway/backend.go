package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/objects"
)

// Config has the settings of a Gateway.
type Config struct {
	Keys    Keys
	Objects *objects.Store
	View    func() *fsm.View                             // The newest local one.
	Read    func(ctx context.Context) (*fsm.View, error) // Has everything acknowledged before the call.
	Propose func(ctx context.Context, cmd command.Command) (command.Result, uint64, error)
	Wait    func(ctx context.Context, index uint64) (*fsm.View, error)
	NewID   func() compute.UUID
	Logger  *slog.Logger
}

// Region is the region that clients name.
const Region = "us-east-1"

// commandTime is how long a read of the state and a command may take.
const commandTime = 10 * time.Second

// store is versitygw's backend over the objects of all organizations.
type store struct {
	backend.BackendUnsupported

	cfg    Config
	logger *slog.Logger
	life   context.Context //nolint:containedctx // Bodies of answers outlive the calls that make them.
}

// String names the backend.
func (*store) String() string { return "berth" }

// caller is whose request it is, in one view of the state.
type caller struct {
	actor command.Actor
	view  *fsm.View
}

// enter returns the caller of a request about a bucket. Another organization's bucket
// does not exist.
func (s *store) enter(ctx context.Context, bucket *string) (caller, error) {
	account, ok := ctx.Value("account").(auth.Account)
	if !ok {
		return caller{}, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	g, ok := s.cfg.Keys.open(account.Access, account.SessionToken)
	if !ok {
		return caller{}, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	if bucket != nil && *bucket != BucketOf(g.org) {
		return caller{}, s3err.GetBucketErr(s3err.ErrNoSuchBucket, *bucket)
	}
	if err := checkSent(ctx); err != nil {
		return caller{}, err
	}
	within, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	view, err := s.cfg.Read(within)
	if err != nil {
		return caller{}, s.fail(err)
	}
	actor, ok := g.actor(view, s.cfg.Keys.Now(), true)
	if !ok {
		return caller{}, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	return caller{actor, view}, nil
}

// propose proposes a command of a request.
func (s *store) propose(cmd command.Command) (index uint64, err error) {
	_, index, err = s.proposed(cmd)
	return index, err
}

// proposed proposes a command of a request, and returns its result too.
func (s *store) proposed(cmd command.Command) (result command.Result, index uint64, err error) {
	ctx, cancel := context.WithTimeout(s.life, commandTime) // The client may be gone: then nobody asks again.
	defer cancel()
	result, index, err = s.cfg.Propose(ctx, cmd)
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	if err != nil {
		err = s.fail(err)
	}
	return result, index, err
}

// op names a command, so that it counts once although it may be proposed again.
func (s *store) op(who caller) command.Op {
	return command.Op{ID: compute.OpID{UUID: s.cfg.NewID()}, Org: who.actor.Org}
}

// fail returns the error of the protocol for one of ours. Others pass.
func (s *store) fail(err error) error {
	e, ok := errors.AsType[*compute.Error](err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return s3err.GetAPIError(s3err.ErrIncompleteBody)
	case !ok && errors.Is(err, context.DeadlineExceeded):
		return s3err.GetAPIError(s3err.ErrSlowDown)
	case !ok:
		if _, known := errors.AsType[s3err.S3Error](err); !known {
			s.logger.Error("request not served", "err", err)
		}
		return err
	}
	switch e.Detail {
	case "precondition_failed":
		return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatch)
	case "upload_not_found":
		return s3err.GetAPIError(s3err.ErrNoSuchUpload)
	case "storage_quota_exceeded":
		return s3err.GetAPIError(s3err.ErrQuotaExceeded)
	case "metadata_too_large":
		return s3err.GetAPIError(s3err.ErrMetadataTooLarge)
	}
	return s.failCode(e)
}

// apiError returns an error of the protocol with a message of ours.
func apiError(code, message string, status int) error {
	return s3err.APIError{Code: code, Description: message, HTTPStatusCode: status}
}

// failCode returns the error of the protocol for a code.
func (s *store) failCode(e *compute.Error) error {
	switch e.Code {
	case compute.CodeNotFound:
		return s3err.GetAPIError(s3err.ErrNoSuchKey)
	case compute.CodeForbidden, compute.CodeUnauthenticated:
		return s3err.GetAPIError(s3err.ErrAccessDenied)
	case compute.CodeTooLarge:
		return s3err.GetAPIError(s3err.ErrEntityTooLarge)
	case compute.CodeNoSpace:
		return apiError("InsufficientStorage", e.Message, http.StatusInsufficientStorage)
	case compute.CodeUnavailable, compute.CodeRateLimited:
		return s3err.GetAPIError(s3err.ErrSlowDown)
	case compute.CodeConflict:
		return apiError("OperationAborted", e.Message, http.StatusConflict)
	case compute.CodeInvalid:
		return apiError("InvalidRequest", e.Message, http.StatusBadRequest)
	default:
		s.logger.Error("request not served", "err", e)
		return s3err.GetAPIError(s3err.ErrInternalError)
	}
}

// GetBucketAcl returns an access list that lets nobody in without credentials.
//
//nolint:revive,staticcheck // The interface's name.
func (s *store) GetBucketAcl(ctx context.Context, in *s3.GetBucketAclInput) ([]byte, error) {
	if account, ok := ctx.Value("account").(auth.Account); ok && account.SessionToken != "" {
		if _, err := s.enter(ctx, in.Bucket); err != nil {
			return nil, err
		}
	}
	return json.Marshal(auth.ACL{Owner: "berth"})
}

// HeadBucket reports whether a bucket is the caller's.
func (s *store) HeadBucket(ctx context.Context, in *s3.HeadBucketInput) (*s3.HeadBucketOutput, error) {
	if _, err := s.enter(ctx, in.Bucket); err != nil {
		return nil, err
	}
	return &s3.HeadBucketOutput{}, nil
}

// CreateBucket answers that the caller's bucket exists, and refuses others.
func (s *store) CreateBucket(ctx context.Context, in *s3.CreateBucketInput, _ []byte) error {
	if _, err := s.enter(ctx, in.Bucket); err != nil {
		return s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	return s3err.GetBucketErr(s3err.ErrBucketAlreadyOwnedByYou, *in.Bucket)
}

// ListBuckets returns the caller's bucket.
func (s *store) ListBuckets(
	ctx context.Context, in s3response.ListBucketsInput,
) (out s3response.ListAllMyBucketsResult, err error) {
	who, err := s.enter(ctx, nil)
	if err != nil {
		return out, err
	}
	out.Owner, out.Prefix = s3response.CanonicalUser{ID: who.actor.Org.String()}, in.Prefix
	org, _ := who.view.Org(who.actor.Org)
	out.Buckets.Bucket = []s3response.ListAllMyBucketsEntry{{
		Name: BucketOf(who.actor.Org), BucketRegion: Region, CreationDate: org.CreatedAt.Time(),
	}}
	return out, nil
}

// A bucket never has these.

func (*store) GetBucketPolicy(_ context.Context, bucket string) ([]byte, error) {
	return nil, s3err.GetBucketErr(s3err.ErrNoSuchBucketPolicy, bucket)
}

func (*store) GetBucketCors(_ context.Context, bucket string) ([]byte, error) {
	return nil, s3err.GetBucketErr(s3err.ErrNoSuchCORSConfiguration, bucket)
}

func (*store) GetObjectLockConfiguration(_ context.Context, bucket string) ([]byte, error) {
	return nil, s3err.GetBucketErr(s3err.ErrObjectLockConfigurationNotFound, bucket)
}

func (*store) GetBucketVersioning(context.Context, string) (s3response.GetBucketVersioningOutput, error) {
	return s3response.GetBucketVersioningOutput{}, nil
}
