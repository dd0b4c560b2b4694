package weights

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"

	"berth/compute"
)

// Want is a model that is asked for.
type Want struct {
	Name  string // owner/name, with @revision, and with :part for the file whose name has that part.
	Org   compute.OrgID
	Token string // For the hub; "" for none.
}

// split returns the parts of a name.
func (w *Want) split() (model, revision, part string) {
	model, part, _ = strings.Cut(w.Name, ":")
	model, revision, _ = strings.Cut(model, "@")
	return model, revision, part
}

// File is one file of a model.
type File struct {
	Name   string `json:"name"` // Slash-separated, below the model.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // Hexadecimal; "" if the source has another hash,
	Git    string `json:"git,omitempty"`    // that of a Git blob.

	// Version changes with the content, for a source that checks what it sends, and has no
	// hashes of whole files.
	Version string `json:"version,omitempty"`
}

// verifiable reports whether damage of the file is noticed.
func (f *File) verifiable() bool { return f.SHA256 != "" || f.Git != "" || f.Version != "" }

// Listing is the files of a model at its source.
type Listing struct {
	Version string // Version of the content: equal versions have equal files.
	Private bool   // For the organization that asked alone.
	Files   []File
}

// Source is one place that has models. Its errors have compute.CodeNotFound if it does
// not have the model, and compute.CodeConflict if a file is no longer as it was listed.
type Source interface {
	// List returns the files of a model.
	List(ctx context.Context, w Want) (Listing, error)
	// Open reads a file from an offset. It may begin at an earlier one, which it returns. It
	// sets a hash of the file that the listing has not.
	Open(ctx context.Context, w Want, l *Listing, f *File, offset int64) (body io.ReadCloser, from int64, err error)
}

// choose returns the files of a model that an engine needs, of the first format that the
// model has; none if it has none of them.
func choose(files []File, w Want, formats []string) (format string, chosen []File) {
	_, _, part := w.split()
	for _, format := range formats {
		if chosen := wanted(files, format, part); len(chosen) > 0 {
			return format, chosen
		}
	}
	return "", nil
}

// wanted returns the files that an engine of a format needs. None of them is code:
// pickles and scripts stay where they are.
func wanted(files []File, format, part string) []File {
	var out []File
	if format == formatGGUF {
		if f, ok := oneGGUF(files, part); ok {
			for _, other := range files {
				if other.Name == f.Name || sameSplit(f.Name, other.Name) {
					out = append(out, other)
				}
			}
		}
		return out
	}
	weights := false
	for _, f := range files {
		ext := strings.ToLower(path.Ext(f.Name))
		if strings.Contains(f.Name, "/") || !slices.Contains([]string{
			".safetensors", ".json", ".txt", ".model", ".tiktoken", ".jinja",
		}, ext) {
			continue
		}
		weights = weights || ext == ".safetensors"
		out = append(out, f)
	}
	if !weights {
		return nil
	}
	return out
}

const (
	formatGGUF   = "gguf"
	defaultQuant = "q4_k_m" // The usual choice among several files.
)

// oneGGUF returns the file of a model to load: the one with the part in its name, or
// the usual quantization, or the first.
func oneGGUF(files []File, part string) (File, bool) {
	var list []File
	for _, f := range files {
		if strings.EqualFold(path.Ext(f.Name), ".gguf") {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	find := func(text string) int {
		return slices.IndexFunc(list, func(f File) bool { return strings.Contains(strings.ToLower(f.Name), text) })
	}
	i := 0
	if part != "" {
		i = find(strings.ToLower(part))
	} else if at := find(defaultQuant); at >= 0 {
		i = at
	}
	if i < 0 || len(list) == 0 {
		return File{}, false
	}
	return list[i], true
}

// sameSplit reports whether two names are parts of one split file, such as
// a-00001-of-00003.gguf.
func sameSplit(a, b string) bool {
	const digits = len("-00001-of-00003.gguf")
	if len(a) != len(b) || len(a) < digits || !strings.Contains(a, "-of-") {
		return false
	}
	return a[:len(a)-digits] == b[:len(b)-digits] && a[len(a)-14:] == b[len(b)-14:]
}

// safeName reports whether a file's name stays below its directory.
func safeName(name string) bool {
	return name != "" && len(name) <= 512 && path.Clean("/"+name) == "/"+name && !strings.ContainsAny(name, "\\\x00")
}
