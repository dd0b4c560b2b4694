package secrets

import (
	"errors"
	"os"
	"path/filepath"
)

// writeNew writes a file that only its owner may read, whole or not at all. It
// returns fs.ErrExist when the file exists.
func writeNew(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".master-*") // CreateTemp sets mode 0600.
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil { // Unlike a rename, it replaces nothing.
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
