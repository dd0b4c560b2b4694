//go:build gcs

package remote

import (
	"errors"
	"net/http"

	_ "gocloud.dev/blob/gcsblob" // gs://, with 20 MB of the program, and gRPC.
	"google.golang.org/api/googleapi"
)

// refusedByGoogle reports whether Google Cloud Storage refuses a request.
func refusedByGoogle(err error) bool {
	e, ok := errors.AsType[*googleapi.Error](err)
	return ok && (e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden)
}
