package contexts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth/cmd/berth/contexts"
)

// inDir has the file of contexts in a directory of the test, and returns its path.
func inDir(t *testing.T) string {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	path, err := contexts.Path()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUpdate(t *testing.T) {
	path := inDir(t)
	if f, err := contexts.Load(); err != nil || len(f.Contexts) != 0 {
		t.Errorf("without a file: %+v, %v", f, err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			err := contexts.Update(func(f *contexts.File) error {
				name := fmt.Sprint("c", i)
				f.Contexts[name], f.Current = contexts.Context{Key: "lk_1", Addrs: []string{"http://a"}}, name
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	f, err := contexts.Load()
	if err != nil || len(f.Contexts) != 8 {
		t.Errorf("%d of 8 changes are there, %v", len(f.Contexts), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if err := contexts.Update(func(f *contexts.File) error { clear(f.Contexts); return os.ErrClosed }); err == nil {
		t.Error("a failed change is no error")
	}
	if err := contexts.Update(func(f *contexts.File) error { delete(f.Contexts, f.Current); return nil }); err != nil {
		t.Error(err)
	}
	if f, err := contexts.Load(); err != nil || f.Current != "" || len(f.Contexts) != 7 {
		t.Errorf("the current context is %q of %d, %v", f.Current, len(f.Contexts), err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".contexts-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestLoadRefuses(t *testing.T) {
	path := inDir(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"readable by others": {`{"contexts":{}}`, 0o644, "chmod 600 " + path},
		"writable by others": {`{"contexts":{}}`, 0o620, "chmod 600 " + path},
		"damaged":            {`{"contexts":`, 0o600, "berth login"},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, test.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := contexts.Load(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err := contexts.Update(func(*contexts.File) error { return nil }); err == nil {
			t.Errorf("%s: it was replaced", name)
		}
	}
	for name, good := range map[string]bool{"lab": true, "a.b-c_1": true, "": false, "-x": false, "a b": false, "../x": false} {
		if err := contexts.CheckName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
