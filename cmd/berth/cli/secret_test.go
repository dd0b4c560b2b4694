package cli_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// fullWriter has no space.
type fullWriter struct{}

var errFull = errors.New("no space left")

func (fullWriter) Write([]byte) (int, error) { return 0, errFull }

// TestSecretIsShown shows a secret on standard error if standard output does not take it.
func TestSecretIsShown(t *testing.T) {
	var words bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(fullWriter{})
	cmd.SetErr(&words)
	keep, err := cli.OpenSecret(cmd, "root token", "-")
	if err != nil {
		t.Fatal(err)
	}
	if err := keep.Keep("brt_new"); !errors.Is(err, errFull) || !strings.Contains(words.String(), "the root token could not be written") ||
		!strings.HasSuffix(words.String(), "\nbrt_new\n") {
		t.Errorf("%v, and %q", err, words.String())
	}
}
