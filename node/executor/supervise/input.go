package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// openInput returns the standard input of the code: a pipe that ends behind the
// input of the execution, or nothing to read. The current directory is the
// attempt's.
func openInput() (*os.File, error) {
	file, err := os.Open(InputFile)
	if errors.Is(err, os.ErrNotExist) {
		file, err = os.Open(os.DevNull)
		if err != nil {
			return nil, fmt.Errorf("open standard input: %w", err)
		}
		return file, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open standard input: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("open standard input: %w", err)
	}
	go func() {
		_, _ = io.Copy(w, file) // Code that reads no more closes the pipe.
		w.Close()
		file.Close()
	}()
	return r, nil
}
