package source

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// ignoreFiles are read in every directory; the last match counts.
func ignoreFiles() []string { return []string{".gitignore", ".berthignore"} }

// alwaysIgnored reports whether a name is never sent: the history, and what
// berth dev keeps, with its credentials.
func alwaysIgnored(name string) bool { return name == ".git" || name == ".berth" }

// ignorePatterns returns the patterns of the ignore files of a directory, whose
// path below the root has the given parts.
func ignorePatterns(dir string, parts []string) ([]gitignore.Pattern, error) {
	var patterns []gitignore.Pattern
	for _, name := range ignoreFiles() {
		file, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read ignore file: %w", err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			line := strings.TrimSuffix(lines.Text(), "\r")
			if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
				patterns = append(patterns, gitignore.ParsePattern(line, parts))
			}
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, name), err)
		}
	}
	return patterns, nil
}
