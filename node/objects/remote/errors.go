package remote

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"berth/compute"
)

// reachedFor is how long a bucket that was there counts as being there.
const reachedFor = time.Minute

// reach checks that the bucket is there, because stores answer that its objects are not
// found if it is not.
func (s *Store) reach(ctx context.Context) error {
	s.mu.Lock()
	reached := s.reached
	s.mu.Unlock()
	if now := s.now(); !reached.IsZero() && now.Sub(reached) < reachedFor && !now.Before(reached) {
		return nil
	}
	_, _, err := s.bucket.ListPage(ctx, blob.FirstPageToken, 1, nil)
	if absent(err) {
		return noBucket("list", err)
	}
	if err != nil {
		return failed("list", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached = s.now()
	return nil
}

// absent reports whether an object is not there, by the error of a store. For gocloud it is
// not there either where Google refuses a request, a bucket is missing, or the name of the
// store does not resolve.
func absent(err error) bool {
	return gcerrors.Code(err) == gcerrors.NotFound && !refused(err) && !missing(err) && !unresolved(err)
}

// missing reports whether the bucket is not there, where the store tells that from a missing
// object.
func missing(err error) bool {
	var s3 interface{ ErrorCode() string }
	return errors.As(err, &s3) && s3.ErrorCode() == "NoSuchBucket" || bloberror.HasCode(err, bloberror.ContainerNotFound)
}

// unresolved reports whether the name of the store does not resolve.
func unresolved(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// refused reports whether the store does not accept the credentials, or they lack a right.
func refused(err error) bool {
	var s3 interface{ HTTPStatusCode() int }
	if errors.As(err, &s3) && refusal(s3.HTTPStatusCode()) {
		return true
	}
	if azure, ok := errors.AsType[*azcore.ResponseError](err); ok && refusal(azure.StatusCode) {
		return true
	}
	return gcerrors.Code(err) == gcerrors.PermissionDenied || refusedByGoogle(err)
}

// refusal reports whether a status is about credentials.
func refusal(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// failed returns the error of an operation.
func failed(what string, err error) error {
	code, text := compute.CodeUnavailable, "The object store failed"
	switch {
	case refused(err):
		text = "The object store refuses the credentials of this node, or they lack a right"
	case missing(err):
		return noBucket(what, err)
	case absent(err):
		code, text = compute.CodeNotFound, "The object store does not have it"
	}
	return compute.Errorf(code, "%s: %s", text, what).Because(cause{err})
}

// noBucket returns the error of an operation on a bucket that is not there.
func noBucket(what string, err error) error {
	return compute.Errorf(compute.CodeUnavailable, "The object store has no such bucket: %s", what).Because(cause{err})
}

// cause is the error of a store, in a line, without what is not for a log: the body of the
// answer, and the query of the URL, which may have a token.
type cause struct{ err error }

// Unwrap returns the error of the store.
func (c cause) Unwrap() error { return c.err }

// rule separates the parts of Azure's errors: the request, the status, the whole body.
const rule = "--------------------------------------------------------------------------------"

// Error returns the text.
func (c cause) Error() string {
	text := c.err.Error()
	if sent, ok := errors.AsType[*url.Error](c.err); ok {
		if bare, _, has := strings.Cut(sent.URL, "?"); has {
			text = strings.ReplaceAll(text, sent.URL, bare)
		}
	}
	parts := strings.SplitN(text, rule, 3)
	return strings.Join(strings.Fields(strings.Join(parts[:min(2, len(parts))], " ")), " ")
}
