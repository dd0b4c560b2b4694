package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// secretMost is more bytes than a token or key has, with its line feed.
const secretMost = 256

// SecretOutput is where a token or key goes that the cluster shows once: a new file that only its
// owner can read, or standard output. The file has its space on the disk before the cluster is
// asked, because nobody can ask for the secret again.
type SecretOutput struct {
	name   string // Name for people.
	path   string // An empty file that reserves the name until the secret is in; "" for none.
	file   *os.File
	stdout io.Writer
	stderr io.Writer
}

// OpenSecret returns where a secret goes for --out: "-" is standard output. The caller calls
// Keep or Drop.
func OpenSecret(cmd *cobra.Command, name, out string) (*SecretOutput, error) {
	s := &SecretOutput{name: name, stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
	if out == "-" {
		signal.Ignore(syscall.SIGPIPE) // The program would end at a write to a reader that has ended.
		return s, nil
	}
	reserved, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	s.path = out
	if err := errors.Join(reserved.Close(), s.reserve()); err != nil {
		return nil, errors.Join(fmt.Errorf("--out: %w", err), s.Drop())
	}
	return s, nil
}

// reserve makes a file beside the other one, with as many bytes on the disk as a secret may
// take.
func (s *SecretOutput) reserve() (err error) {
	if s.file, err = os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".new*"); err != nil {
		return err
	}
	if _, err := s.file.Write(bytes.Repeat([]byte("-"), secretMost)); err != nil {
		return err
	}
	return s.file.Sync()
}

// Drop removes the file if there is no secret to keep.
func (s *SecretOutput) Drop() error {
	if s.path == "" {
		return nil
	}
	err := os.Remove(s.path)
	if s.file == nil {
		return err
	}
	return errors.Join(err, s.file.Close(), os.Remove(s.file.Name()))
}

// Keep writes the secret. If that fails, it shows the secret on standard error.
func (s *SecretOutput) Keep(text string) error {
	if s.path == "" {
		_, err := fmt.Fprintln(s.stdout, text)
		return s.Show(text, err)
	}
	err := s.write([]byte(text + "\n"))
	if err != nil {
		err = fmt.Errorf("--out: %w", errors.Join(err, s.Drop()))
	}
	return s.Show(text, err)
}

// Show shows the secret on standard error if err says that it could not be written elsewhere.
func (s *SecretOutput) Show(text string, err error) error {
	if err == nil {
		return nil
	}
	_, shown := fmt.Fprintf(s.stderr, "berth: the %s could not be written; this is it, shown this once:\n%s\n",
		s.name, text)
	return errors.Join(err, shown)
}

// write replaces the bytes that reserve has written, and gives the file its name.
func (s *SecretOutput) write(data []byte) error {
	if _, err := s.file.WriteAt(data, 0); err != nil {
		return err
	}
	if err := s.file.Truncate(int64(len(data))); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(s.file.Name(), s.path); err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(s.path)); err == nil {
		_ = dir.Sync() // Not every system can; the file is there.
		dir.Close()
	}
	s.file.Close()
	return nil
}
