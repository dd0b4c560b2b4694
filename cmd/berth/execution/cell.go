package execution

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/inspect"
	"berth/compute"
)

// maxStateBytes is the largest state of a notebook cell that a start accepts.
const maxStateBytes = 4 << 20

// readCell makes a start the next cell of the notebook whose state is in a file; it
// is the first one if there is none yet.
func readCell(start *client.Start, path string) error {
	if start.Code == "" {
		return cli.UsageErrorf("--cell: a cell is Python code: a file, or -c CODE")
	}
	state, err := cli.ReadFile(path, maxStateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		start.NBCode = 1
		return nil
	}
	start.NBCode, start.KernelState = 2, state
	return err
}

// keepCell writes what a cell left. A cell that left nothing, because it was ended
// from outside, leaves the file as it was.
func keepCell(cmd *cobra.Command, c *client.Client, id compute.ExecutionID, path string) error {
	e, err := c.Finished(cmd.Context(), id)
	if err != nil {
		return inspect.Interrupted(cmd.Context(), id, err)
	}
	if e.KernelState == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "berth: the cell left no state: %s is as before\n", path)
		return nil
	}
	// The name changes hands at once: a full disk costs no earlier state.
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("keep the state of the cell: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(*e.KernelState)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("keep the state of the cell: %w", err)
	}
	return nil
}
