package inputs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/compute"
	"berth/node/executor/sandbox"
)

const defaultFileName = "main.py"

// Limits of a bundle.
const (
	maxImportFiles = 1000
	maxPathBytes   = 1024
	maxEnv         = 1000 // Environment variables of the bundle.
)

// workFiles returns the files of the bundle, with clean paths. An import file with
// the name of the code is left out.
func workFiles(bundle *compute.Bundle) ([]sandbox.WorkFile, error) {
	if len(bundle.ImportFiles)+len(bundle.StoredFiles) > maxImportFiles {
		return nil, compute.Errorf(compute.CodeInvalid, "more than %d import files", maxImportFiles)
	}
	if len(bundle.Env) > maxEnv {
		return nil, compute.Errorf(compute.CodeInvalid, "more than %d variables", maxEnv)
	}
	texts := make(map[string]string, len(bundle.ImportFiles)+1)
	for name, text := range bundle.ImportFiles {
		if err := checkName(name); err != nil {
			return nil, err
		}
		texts[filepath.Clean(name)] = text
	}
	for name, content := range bundle.StoredFiles {
		if err := checkName(name); err != nil {
			return nil, err
		}
		texts[filepath.Clean(name)] = string(content)
	}
	if bundle.Code != "" {
		if err := checkName(FileName(bundle)); err != nil {
			return nil, err
		}
		texts[FileName(bundle)] = bundle.Code
	}
	names := slices.Sorted(maps.Keys(texts))
	if err := checkDirs(names, texts); err != nil {
		return nil, err
	}
	files := make([]sandbox.WorkFile, 0, len(names))
	for _, name := range names {
		files = append(files, sandbox.WorkFile{Path: name, Text: texts[name]})
	}
	return files, nil
}

// checkName checks that name is the path of a file in the work directory.
func checkName(name string) error {
	if !filepath.IsLocal(name) || filepath.Clean(name) == "." || len(name) > maxPathBytes ||
		strings.ContainsRune(name, 0) {
		return compute.Errorf(compute.CodeInvalid,
			"file name %.100q is not a relative path inside the work directory", name)
	}
	if strings.Count(filepath.Clean(name), "/") >= compute.MaxPathDepth {
		return compute.Errorf(compute.CodeInvalid,
			"file name %.100q has more than %d parts", name, compute.MaxPathDepth)
	}
	return nil
}

// checkDirs checks that no file is the directory of another one, and the number of
// directories.
func checkDirs(names []string, texts map[string]string) error {
	dirs := make(map[string]bool)
	for _, name := range names {
		for dir := filepath.Dir(name); dir != "." && !dirs[dir]; dir = filepath.Dir(dir) {
			if _, isFile := texts[dir]; isFile {
				return compute.Errorf(compute.CodeInvalid, "file name %.100q goes through another file", name)
			}
			dirs[dir] = true
		}
	}
	if len(dirs) > compute.MaxBundleDirs {
		return compute.Errorf(compute.CodeInvalid, "the files are in more than %d directories", compute.MaxBundleDirs)
	}
	return nil
}

// WriteWork writes the bundle's files, and before them those that uploaded writes,
// to one file. They are unpacked in the sandbox, within its limits: their
// directories cost time. Uploaded, unless it is nil, leaves out the paths that the
// bundle has.
func WriteWork(
	name string, bundle *compute.Bundle, uploaded func(w *sandbox.WorkWriter, own map[string]bool) error,
) error {
	files, err := workFiles(bundle)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write work file: %w", err)
	}
	if uploaded != nil {
		own, out := make(map[string]bool, len(files)), sandbox.NewWorkWriter(file)
		for i := range files {
			own[files[i].Path] = true
		}
		err = uploaded(out, own)
		if err == nil {
			err = out.Flush()
		}
	}
	if err == nil {
		err = sandbox.WriteWork(file, files)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write work file: %w", err)
	}
	return nil
}

// FileName returns the file name of the bundle's code.
func FileName(bundle *compute.Bundle) string {
	if bundle.FileName == "" {
		return defaultFileName
	}
	return filepath.Clean(bundle.FileName)
}
