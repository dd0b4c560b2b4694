//go:build !gcs

package remote

import (
	"context"
	"net/url"
)

// findGoogle finds nothing wrong: this program does not open gs://.
func findGoogle(context.Context, *url.URL) error { return nil }

// refusedByGoogle is false: this program does not open gs://.
func refusedByGoogle(error) bool { return false }
