package remote

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"berth/compute"
)

// reach checks once that the bucket is there, because stores say of its objects that they
// are not found if it is not.
func (s *Store) reach(ctx context.Context) error {
	s.mu.Lock()
	reached := s.reached
	s.mu.Unlock()
	if reached {
		return nil
	}
	_, _, err := s.bucket.ListPage(ctx, blob.FirstPageToken, 1, nil)
	if absent(err) {
		const text = "The object store has no such bucket: list: %s"
		return compute.Errorf(compute.CodeUnavailable, text, cause(err)).Because(err)
	}
	if err != nil {
		return failed("list", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached = true
	return nil
}

// absent reports whether an error says that an object is not there. gocloud says so too
// where Google refuses a request.
func absent(err error) bool { return gcerrors.Code(err) == gcerrors.NotFound && !refused(err) }

// refused reports whether an error says that the store does not accept the credentials, or
// that they lack a right.
func refused(err error) bool {
	var s3 interface{ HTTPStatusCode() int }
	if errors.As(err, &s3) && refusal(s3.HTTPStatusCode()) {
		return true
	}
	return gcerrors.Code(err) == gcerrors.PermissionDenied || refusedByGoogle(err) || bloberror.HasCode(err,
		bloberror.AuthorizationFailure, bloberror.AuthorizationPermissionMismatch, bloberror.InsufficientAccountPermissions,
		bloberror.InvalidAuthenticationInfo, bloberror.NoAuthenticationInformation)
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
	case absent(err):
		code, text = compute.CodeNotFound, "The object store does not have it"
	}
	return compute.Errorf(code, "%s: %s: %s", text, what, cause(err)).Because(err)
}

// rule separates the parts of Azure's errors: the request, the status, the whole body.
const rule = "--------------------------------------------------------------------------------"

// cause returns the text of an error in a line, without the body of the answer.
func cause(err error) string {
	parts := strings.SplitN(err.Error(), rule, 3)
	return strings.Join(strings.Fields(strings.Join(parts[:min(2, len(parts))], " ")), " ")
}
