package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// openInput returns the standard input of the code: a pipe that ends behind the
// input of the execution, or nothing to read. The current directory is the
// attempt's. Closing feed, nil for no pipe, ends the writing also if somebody else than the code, which
// may pass its input on, does not read it.
func openInput() (stdin, feed *os.File, err error) {
	file, err := os.Open(InputFile)
	if errors.Is(err, os.ErrNotExist) {
		stdin, err = os.Open(os.DevNull)
		if err != nil {
			return nil, nil, fmt.Errorf("open standard input: %w", err)
		}
		return stdin, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open standard input: %w", err)
	}
	stdin, feed, err = os.Pipe()
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("open standard input: %w", err)
	}
	go func() {
		_, _ = io.Copy(feed, file) // Code that reads no more closes the pipe.
		feed.Close()
		file.Close()
	}()
	return stdin, feed, nil
}
