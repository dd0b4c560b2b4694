//go:build gcs

package remote

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strconv"

	"gocloud.dev/blob/gcsblob" // gs://, with 20 MB of the program, and gRPC.
	"gocloud.dev/gcp"
	"google.golang.org/api/googleapi"
)

// findGoogle returns an error if there are no credentials for a URL of Google Cloud Storage.
// Without them gocloud prints a warning, and asks with an empty key.
func findGoogle(ctx context.Context, u *url.URL) error {
	anonymous, _ := strconv.ParseBool(u.Query().Get("anonymous"))
	keyless := anonymous || u.Query().Get("access_id") == "-" || os.Getenv("STORAGE_EMULATOR_HOST") != ""
	if u.Scheme != gcsblob.Scheme || keyless {
		return nil
	}
	_, err := gcp.DefaultCredentials(ctx)
	return err
}

// refusedByGoogle reports whether Google Cloud Storage refuses a request.
func refusedByGoogle(err error) bool {
	e, ok := errors.AsType[*googleapi.Error](err)
	return ok && refusal(e.Code)
}
