package secrets

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// writeNew writes a file that only its owner may read, whole or not at all. It
// returns fs.ErrExist when the file exists.
func writeNew(path string, data []byte) error {
	return write(path, data, os.Link) // Unlike a rename, it replaces nothing.
}

// replace writes a file that only its owner may read, in place of the one at path.
func replace(path string, data []byte) error { return write(path, data, os.Rename) }

// write writes a file and has place put it to its path.
func write(path string, data []byte, place func(from, to string) error) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".master-*") // CreateTemp sets mode 0600.
	if err != nil {
		return err
	}
	defer func() {
		if failed := os.Remove(f.Name()); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
