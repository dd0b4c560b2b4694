package cli_test

import (
	"bytes"
	"errors"
	"io"
	"os"
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

// secretProgram has the test below be the program that shows a secret.
const secretProgram = "BERTH_TEST_SECRET"

// TestSecretIsShownWithoutAReader shows a secret on standard error if the program that standard output
// went to has ended: writing there ends a Go program unless it ignores that.
func TestSecretIsShownWithoutAReader(t *testing.T) {
	if os.Getenv(secretProgram) != "" {
		keep, err := cli.OpenSecret(&cobra.Command{}, "root token", "-")
		if err == nil {
			err = keep.Keep("brt_new")
		}
		if err == nil {
			t.Error("standard output has taken it")
		}
		return
	}
	gone, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	words, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer words.Close()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	program, err := os.StartProcess(os.Args[0], []string{os.Args[0], "-test.run=^" + t.Name() + "$"}, &os.ProcAttr{
		Env: append(os.Environ(), secretProgram+"=1"), Files: []*os.File{nil, stdout, stderr},
	})
	stderr.Close()
	if err != nil {
		t.Fatal(err)
	}
	shown, readErr := io.ReadAll(words)
	if _, err := program.Wait(); err != nil || readErr != nil || !strings.Contains(string(shown), "shown this once:\nbrt_new\n") {
		t.Errorf("%v, %v, standard error has %q", err, readErr, shown)
	}
}
