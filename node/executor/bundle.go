package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"berth/compute"
)

// Limits of a bundle.
const (
	maxImportFiles = 1000
	maxPathBytes   = 1024
	maxEnv         = 1000 // Environment variables of the bundle.
)

// checkBundle checks the bundle's file names and the number of its variables.
func checkBundle(bundle *compute.Bundle) error {
	if len(bundle.ImportFiles) > maxImportFiles {
		return compute.Errorf(compute.CodeInvalid, "more than %d import files", maxImportFiles)
	}
	if len(bundle.Env) > maxEnv {
		return compute.Errorf(compute.CodeInvalid, "more than %d variables", maxEnv)
	}
	names := []string{fileName(bundle)}
	for name := range bundle.ImportFiles {
		names = append(names, name)
	}
	for _, name := range names {
		if !filepath.IsLocal(name) || filepath.Clean(name) == "." || len(name) > maxPathBytes {
			return compute.Errorf(compute.CodeInvalid,
				"file name %.100q is not a relative path inside the work directory", name)
		}
	}
	return nil
}

// writeWork writes the bundle's files to dir. They belong to uid, the root of the
// sandbox, which copies them from there. The code is written last, so that an
// import file of the same name does not replace it.
func writeWork(dir string, bundle *compute.Bundle, uid int) error {
	if err := checkBundle(bundle); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid)); err != nil {
		return fmt.Errorf("write work directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write work directory: %w", err)
	}
	defer root.Close()
	names := make([]string, 0, len(bundle.ImportFiles))
	for name := range bundle.ImportFiles {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := writeFile(root, filepath.Clean(name), bundle.ImportFiles[name], uid); err != nil {
			return err
		}
	}
	return writeFile(root, fileName(bundle), bundle.Code, uid)
}

func writeFile(root *os.Root, name, text string, uid int) error {
	if err := makeParents(root, filepath.Dir(name), uid); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	err := root.WriteFile(name, []byte(text), 0o600)
	if err == nil {
		err = root.Lchown(name, uid, uid)
	}
	if err != nil {
		// Two names may conflict, such as a and a/b.
		return compute.Errorf(compute.CodeInvalid, "file name %.100q cannot be written: %w", name, err)
	}
	return nil
}

// makeParents makes dir and its parents, owned by uid.
func makeParents(root *os.Root, dir string, uid int) error {
	if dir == "." {
		return nil
	}
	if err := makeParents(root, filepath.Dir(dir), uid); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return root.Lchown(dir, uid, uid)
}
