package compute

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Every submit encodes a bundle and every start decodes one. A new writer would
// allocate 800 KiB for each.
//
//nolint:gochecknoglobals // Shared by all bundles.
var (
	zippers   = zippersOf(gzip.BestSpeed)
	storers   = zippersOf(gzip.NoCompression) // For small texts.
	unzippers = sync.Pool{New: func() any { return new(gzip.Reader) }}
)

// smallText is the bytes of texts that are stored as they are. To compress one takes four
// times as long, and saves a few bytes.
const smallText = 256

// zippersOf returns a pool of writers.
func zippersOf(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		w, err := gzip.NewWriterLevel(io.Discard, level)
		if err != nil {
			panic(err) // The level is a constant.
		}
		return w
	}}
}

// Hash is the SHA-256 of a blob.
type Hash [sha256.Size]byte

// Bundle is the code of an execution and its files. The state never reads them.
// It has exactly one of Code, Module, Command and Script, unless the execution's image
// or Compose file names the program.
type Bundle struct {
	Code         string            `json:"code"`
	Module       string            `json:"module,omitempty"`  // Executed as python -m does.
	Command      []string          `json:"command,omitempty"` // A program and its arguments.
	Script       string            `json:"script,omitempty"`  // A Python file in the uploaded files.
	Args         []string          `json:"args,omitempty"`    // Arguments of Code, Module or Script.
	Stdin        []byte            `json:"stdin,omitempty"`
	FileName     string            `json:"file_name,omitempty"`
	ImportFiles  map[string]string `json:"import_files,omitempty"`  // Relative path to text.
	StoredFiles  map[string][]byte `json:"stored_files,omitempty"`  // The same for files that were in storage.
	PriorImports []string          `json:"prior_imports,omitempty"` // Import statements executed before the code.
	Env          map[string]string `json:"env,omitempty"`
	Requirements string            `json:"requirements,omitempty"` // Packages to install before the code starts.
	Cell         int               `json:"cell,omitempty"`         // Code is the n-th cell of a notebook; 0 for a script.
	KernelState  string            `json:"kernel_state,omitempty"` // The kernel's state after earlier cells, in base64.
	User         string            `json:"user,omitempty"`         // User of the image's program; "" for the image's own.
	Compose      string            `json:"compose,omitempty"`      // A Compose file.
}

// BundleRef is where a bundle is: inline in the record when it is small,
// otherwise in the blob stores under its hash. Size and Hash are of the encoded
// form.
type BundleRef struct {
	Hash   Hash   `cbor:"1,keyasint"`
	Size   int64  `cbor:"2,keyasint"`
	Inline []byte `cbor:"3,keyasint,omitempty"`
}

// Limits of bundles.
const (
	MaxInlineBundle  = 16 << 10  // An encoded bundle up to this size is part of its command.
	MaxDecodedBundle = 16 << 20  // A bundle that unpacks to more is refused.
	MaxPathDepth     = 32        // Parts of the path of an import file.
	MaxBundleDirs    = 1000      // Directories of all import files together.
	MaxRecordedPaths = 1 << 10   // Bytes of the paths of import files that a record keeps.
	MaxStdin         = 1 << 20   // Bytes of standard input.
	MaxArguments     = 256 << 10 // Bytes of the arguments, with a NUL behind each.
)

// RecordedPaths returns the first paths that together take at most
// MaxRecordedPaths as JSON text. Records are held in the memory of every server,
// and a user may send hundreds of long paths; the bundle has them all.
func RecordedPaths(paths []string) []string {
	size := len("[]")
	for i, p := range paths {
		text, err := json.Marshal(p)
		if size += len(text) + len(","); err != nil || size > MaxRecordedPaths {
			return paths[:i:i]
		}
	}
	return paths
}

// Encode returns the bundle as gzipped JSON, the same bytes for the same
// bundle. The error has CodeTooLarge when DecodeBundle would refuse it.
func (b *Bundle) Encode() ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // An escaped "<" would take six bytes.
	if err := e.Encode(b); err != nil {
		return nil, fmt.Errorf("encode bundle: %w", err)
	}
	if text.Len() > MaxDecodedBundle {
		return nil, Errorf(CodeTooLarge, "The code and its files take more than %d bytes.", MaxDecodedBundle)
	}
	data, err := zip(text.Bytes())
	if err != nil {
		return nil, fmt.Errorf("encode bundle: %w", err)
	}
	return data, nil
}

// DecodeBundle is the inverse of Encode. It refuses data that unpacks to more
// than MaxDecodedBundle.
func DecodeBundle(data []byte) (*Bundle, error) {
	text, err := unzip(data, MaxDecodedBundle)
	if err != nil {
		return nil, fmt.Errorf("decode bundle: %w", err)
	}
	b := new(Bundle)
	if err := json.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("decode bundle: %w", err)
	}
	return b, nil
}

// zip compresses text, to the same bytes for the same text.
func zip(text []byte) ([]byte, error) {
	var buf bytes.Buffer
	pool := zippers
	if len(text) <= smallText {
		pool = storers
	}
	w := pool.Get().(*gzip.Writer)
	defer pool.Put(w)
	w.Reset(&buf)
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// unzip is the inverse of zip. It refuses data that unpacks to more than limit.
func unzip(data []byte, limit int64) ([]byte, error) {
	r := unzippers.Get().(*gzip.Reader)
	defer unzippers.Put(r)
	if err := r.Reset(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("more than %d bytes", limit)
	}
	return text, nil
}
