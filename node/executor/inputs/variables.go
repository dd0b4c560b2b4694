package inputs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"berth/composefile"
	"berth/compute"
)

// VariablesOf returns the variables that the user of the work keeps. Those that the
// start sets itself are left out.
func (i *Inputs) VariablesOf(
	ctx context.Context, w compute.Work, bundle *compute.Bundle,
) ([]compute.EnvVariable, error) {
	if i.variables == nil {
		return nil, nil
	}
	var kept []compute.EnvVariable
	err := i.calls.Input(ctx, func(ctx context.Context) (err error) {
		kept, err = i.variables(ctx, w)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: its variables: %w", ErrUnread, err)
	}
	var given []compute.EnvVariable
	for _, v := range kept {
		if _, set := bundle.Env[v.Name]; !set && compute.BadVariable(v.Name, v.Value) == "" && !ownName(w, v.Name) {
			given = append(given, v)
		}
	}
	return given, nil
}

// PassVariables returns a file in memory with variables, for a supervisor; nil for none.
// Secrets are in no file on a disk.
func PassVariables(given []compute.EnvVariable) (*os.File, error) {
	if len(given) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("pass variables: %w", err)
	}
	fd, err := unix.MemfdCreate("variables", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("pass variables: %w", err)
	}
	file := os.NewFile(uintptr(fd), "variables")
	if _, err := file.WriteAt(data, 0); err != nil {
		file.Close()
		return nil, fmt.Errorf("pass variables: %w", err)
	}
	return file, nil
}

// ownName reports whether Berth sets a variable for the work.
func ownName(w compute.Work, name string) bool {
	return name == "CUDA_VISIBLE_DEVICES" || name == "PORT" && w.Execution.Serving != nil ||
		w.Execution.Container != nil && strings.HasPrefix(name, composefile.GPUVariables)
}
