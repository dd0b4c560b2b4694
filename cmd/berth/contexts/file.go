package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"
)

// maxName is the length of the longest name of a context.
const maxName = 63

// Context is one cluster, and as whom to use it: with a key, with a session, or
// as the cluster of berth dev in a directory says.
type Context struct {
	Addrs  []string `json:"addrs,omitempty"`
	Email  string   `json:"email,omitempty"`
	Org    string   `json:"org,omitempty"`     // Slug; "" for the default organization.
	CACert string   `json:"ca_cert,omitempty"` // PEM of the authorities to trust.
	DevDir string   `json:"dev_dir,omitempty"` // The directory of berth dev, which has the rest.

	Key string `json:"key,omitempty"` // An API key, or the root token.

	AccessToken  string    `json:"access_token,omitempty"`
	RefreshToken string    `json:"refresh_token,omitempty"`
	ExpiresAt    time.Time `json:"expires_at,omitzero"` // The end of the access token.
}

// Token returns the bearer token.
func (c *Context) Token() string {
	if c.Key != "" {
		return c.Key
	}
	return c.AccessToken
}

// File is the content of the file of contexts.
type File struct {
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
}

// Path returns the path of the file: below XDG_CONFIG_HOME, or where the system
// keeps the configuration of a user.
func Path() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", fmt.Errorf("find the directory for contexts: %w", err)
		}
	}
	return filepath.Join(dir, "berth", "contexts.json"), nil
}

// Load returns the content of the file, none if there is no file. A file that
// others can read is an error.
func Load() (File, error) {
	path, err := Path()
	if err != nil {
		return File{}, nil //nolint:nilerr // Without a home directory there are no contexts.
	}
	return load(path)
}

func load(path string) (File, error) {
	empty := File{Contexts: map[string]Context{}}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission) && underOther(path):
		return empty, nil
	case err != nil:
		return File{}, fmt.Errorf("read contexts: %w", err)
	}
	if err := checkMode(path); err != nil {
		return File{}, err
	}
	var f File
	if err := json.Unmarshal(data, &f); err != nil {
		return File{}, fmt.Errorf("%s is damaged (%w): move it away and sign in again with berth login", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = empty.Contexts
	}
	return f, nil
}

// underOther reports whether the directory of path cannot be read, as that of
// another user's home: then it holds nothing for this one.
func underOther(path string) bool {
	_, err := os.Stat(filepath.Dir(path))
	return errors.Is(err, fs.ErrPermission)
}

// checkMode refuses a file that others can read or write.
func checkMode(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read contexts: %w", err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return fmt.Errorf("%s holds credentials, and others can read or change it (mode %04o): run\n\n  chmod 600 %s\n\n"+
			"If somebody may have read it, sign out with berth logout and revoke its keys with berth keys revoke",
			path, mode, path)
	}
	return nil
}

// Update changes the content of the file under a lock. Nothing is written if
// change fails.
func Update(change func(*File) error) error {
	path, err := Path()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep contexts: %w", err)
	}
	unlock, err := lock(path + ".lock")
	if err != nil {
		return fmt.Errorf("lock contexts: %w", err)
	}
	defer unlock()
	f, err := load(path)
	if err != nil {
		return err
	}
	if err := change(&f); err != nil {
		return err
	}
	if _, ok := f.Contexts[f.Current]; !ok {
		f.Current = ""
	}
	return replace(path, f)
}

// replace writes the file beside the old one and renames it.
func replace(path string, f File) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("keep contexts: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".contexts-*") // Mode 0600.
	if err != nil {
		return fmt.Errorf("keep contexts: %w", err)
	}
	_, err = temporary.Write(append(data, '\n'))
	if err == nil {
		err = temporary.Sync()
	}
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep contexts: %w", err), os.Remove(temporary.Name()))
	}
	return nil
}

// CheckName refuses names that a command line or a table would spoil.
func CheckName(name string) error {
	if len(name) > maxName || !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`).MatchString(name) {
		return fmt.Errorf("%q is not a name of a context: use up to %d letters, digits, dots, dashes and underscores",
			name, maxName)
	}
	return nil
}

// Keep replaces the tokens of the session by those of an answer, which says in how
// many seconds the access token expires.
func (c *Context) Keep(access, refresh string, seconds int) {
	now := time.Now() //nolint:forbidigo // The end of a session is an instant of the day.
	c.AccessToken, c.RefreshToken = access, refresh
	c.ExpiresAt = now.Add(time.Duration(seconds) * time.Second).UTC().Truncate(time.Second)
}
