package sandbox

import (
	"bytes"
	"io"
	"os"
	slash "path" // Not path/filepath: supervisors import this package and must start quickly.
	"slices"
	"strings"
)

const (
	maxLinks   = 40  // Links of a path that are followed.
	maxShebang = 256 // Bytes of a script's first line that the kernel reads.
)

// HasProgram reports whether a sandbox that shows some of the machine's directories and files,
// each under its own path, can execute a program: an absolute path, or a name that is
// searched in a list of directories. The links to it must be shown too, as must the
// interpreter of a script.
func HasProgram(name string, search, shown []string) bool {
	if slash.IsAbs(name) {
		return isExecutable(name, shown)
	}
	return !strings.Contains(name, "/") && slices.ContainsFunc(search, func(dir string) bool {
		return isExecutable(slash.Join(dir, name), shown)
	})
}

func isExecutable(name string, shown []string) bool {
	file, ok := resolve(name, shown)
	if !ok {
		return false
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return false
	}
	interpreter := shebang(file)
	if interpreter == "" {
		return true
	}
	_, ok = resolve(interpreter, shown)
	return ok
}

// shebang returns the interpreter of a script, "" for other files.
func shebang(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	line := make([]byte, maxShebang)
	n, _ := io.ReadFull(f, line)
	text, is := bytes.CutPrefix(line[:n], []byte("#!"))
	if !is {
		return ""
	}
	text, _, _ = bytes.Cut(text, []byte("\n"))
	if words := strings.Fields(string(text)); len(words) > 0 {
		return words[0]
	}
	return ""
}

// resolve follows the links of a path as in a sandbox. It reports false if one of them leads
// to what is not shown.
func resolve(name string, shown []string) (string, bool) {
	name = slash.Clean(name)
	for range maxLinks {
		at := slices.IndexFunc(shown, func(dir string) bool { return Contains(dir, name) })
		if at < 0 {
			return "", false
		}
		next, err := followLink(shown[at], name)
		if err != nil {
			return "", false
		}
		if next == name {
			return name, true
		}
		name = next
	}
	return "", false
}

// followLink returns a path without its first link below a directory, or the path itself.
func followLink(dir, name string) (string, error) {
	at := dir
	for rest := strings.TrimPrefix(name[len(dir):], "/"); rest != ""; {
		part, more, _ := strings.Cut(rest, "/")
		parent := at
		at, rest = slash.Join(at, part), more
		info, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			continue
		}
		target, err := os.Readlink(at)
		if err != nil {
			return "", err
		}
		if !slash.IsAbs(target) {
			target = slash.Join(parent, target)
		}
		return slash.Join(target, rest), nil
	}
	return name, nil
}
