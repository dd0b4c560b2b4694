//go:build gcs

package remote_test

import (
	"strings"
	"testing"
	"time"

	"berth/node/objects/remote"
)

// TestCredentialsOfGoogle does not open a store without them.
func TestCredentialsOfGoogle(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
	_, err := remote.Open(t.Context(), "gs://bucket", "mine", time.Now)
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/key.json") {
		t.Errorf("opened: %v", err)
	}
	if s, err := remote.Open(t.Context(), "gs://bucket?anonymous=true", "mine", time.Now); err != nil {
		t.Error(err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
}
