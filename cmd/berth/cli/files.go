package cli

import (
	"io"
	"os"
	"unicode/utf8"
)

// ReadFile returns the text of a file of at most limit bytes. Its error is a
// usage error.
func ReadFile(path string, limit int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", UsageErrorf("%w", err)
	}
	defer f.Close()
	return ReadLimited(f, path, limit)
}

// ReadLimited returns the text that r has, at most limit bytes. name is that of
// the source, for errors, which are usage errors.
func ReadLimited(r io.Reader, name string, limit int64) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", UsageErrorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return "", UsageErrorf("%s is larger than %d bytes", name, limit)
	}
	// JSON carries text only: invalid UTF-8 would be replaced.
	if !utf8.Valid(data) {
		return "", UsageErrorf("%s is not UTF-8 text", name)
	}
	return string(data), nil
}
