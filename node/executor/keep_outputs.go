package executor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"berth/compute"
	"berth/node/executor/inputs"
	"berth/node/executor/live"
	"berth/node/executor/outputs"
	"berth/node/executor/prepare"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

const (
	outputsPatience = 5 * time.Minute // For all outputs of an attempt to be stored.
	packedFile      = 1 << 20         // Bytes; smaller files share chunks.
)

// outputKeeper stores what attempts leave.
type outputKeeper struct {
	dirs    *live.Dirs
	calls   *live.Calls
	blobs   inputs.Blobs    // nil: outputs are not kept.
	storage prepare.Storage // Has the buckets to which they are copied.
	log     *slog.Logger
}

// keep stores the outputs of an attempt, and returns where they are. The warning
// names outputs that could not be stored.
func (o *outputKeeper) keep(ctx context.Context, a *live.Attempt) *compute.Outputs {
	k := a.Key
	summary := outputs.ReadSummary(o.dirs.File(k, supervise.OutputsSummary))
	warning := summary.Warning()
	kept, err := o.store(ctx, o.dirs.File(k, supervise.OutputsFile))
	if err != nil && ctx.Err() == nil {
		o.log.Warn("outputs not stored", "execution", k.Execution, "attempt", k.Epoch, "err", err)
		lost := "the outputs are lost, because they could not be stored: " + compute.MessageOf(err)
		warning = strings.TrimPrefix(warning+"; "+lost, "; ")
	}
	if err := o.copy(ctx, a); err != nil && ctx.Err() == nil {
		o.log.Warn("outputs not copied to storage", "execution", k.Execution, "attempt", k.Epoch, "err", err)
		warning = strings.TrimPrefix(warning+"; outputs were not copied to storage: "+compute.MessageOf(err), "; ")
	}
	if kept == nil {
		kept = new(compute.Outputs)
	}
	kept.Warning = compute.Clip(warning, compute.MaxOutputWarning)
	if *kept == (compute.Outputs{}) {
		return nil
	}
	return kept
}

// store stores the files of a work stream, and their manifest, as blobs. It
// returns nil where there are none.
func (o *outputKeeper) store(ctx context.Context, name string) (*compute.Outputs, error) {
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store outputs: %w", err)
	}
	defer file.Close()
	if o.blobs == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "this node stores no outputs")
	}
	limited, cancel := context.WithTimeout(ctx, outputsPatience)
	defer cancel()
	p := &packer{tree: &compute.Tree{ChunkSize: compute.MaxChunk}, put: func(data []byte) (compute.Hash, error) {
		return o.putBlob(limited, data)
	}}
	if err := p.pack(file); err != nil {
		return nil, err
	}
	if len(p.tree.Entries) == 0 {
		return nil, nil
	}
	slices.SortFunc(p.tree.Entries, func(a, b compute.TreeEntry) int { return strings.Compare(a.Path, b.Path) })
	manifest, err := p.tree.Encode()
	if err != nil {
		return nil, err
	}
	kept := &compute.Outputs{Count: len(p.tree.Entries), Bytes: p.tree.Bytes()}
	kept.Manifest, err = p.put(manifest)
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// putBlob stores data. A full disk is final, anything else is tried again.
func (o *outputKeeper) putBlob(ctx context.Context, data []byte) (hash compute.Hash, err error) {
	var full error
	err = o.calls.Repeat(ctx, func(ctx context.Context) (err error) {
		hash, err = o.blobs.Put(ctx, data)
		if compute.CodeOf(err) == compute.CodeNoSpace {
			full = err
			return nil
		}
		return err
	})
	return hash, errors.Join(full, err)
}

// packer turns a work stream into chunks and the entries of a tree. Small files
// share chunks.
type packer struct {
	tree  *compute.Tree
	put   func([]byte) (compute.Hash, error)
	small bytes.Buffer // Contents of the files in wait.
	wait  []int        // The entries of the chunk that small becomes.
	chunk []byte
}

// pack stores the files of a stream. A stream that is cut counts up to there.
func (p *packer) pack(from io.Reader) error {
	r := sandbox.NewWorkReader(from)
	for {
		entry, content, err := r.Next()
		if err != nil {
			return p.flush() // The summary says whether something is missing.
		}
		if entry.Kind != sandbox.WorkRegular || compute.BadPath(entry.Path) != "" {
			continue
		}
		if err := p.file(&entry, content); errors.Is(err, io.ErrUnexpectedEOF) {
			return p.flush()
		} else if err != nil {
			return err
		}
	}
}

// file stores one file.
func (p *packer) file(e *sandbox.WorkEntry, content io.Reader) error {
	out := compute.TreeEntry{Path: e.Path, Mode: uint32(e.Mode.Perm()), Size: e.Size}
	sum := sha256.New()
	content = io.TeeReader(content, sum)
	if e.Size <= packedFile {
		return p.smallFile(out, content, sum)
	}
	if p.chunk == nil {
		p.chunk = make([]byte, compute.MaxChunk)
	}
	for left := e.Size; left > 0; {
		piece := p.chunk[:min(left, compute.MaxChunk)]
		if _, err := io.ReadFull(content, piece); err != nil {
			return cut(err)
		}
		chunk, err := p.put(piece)
		if err != nil {
			return err
		}
		out.Chunks = append(out.Chunks, compute.Digest(chunk))
		left -= int64(len(piece))
	}
	out.SHA256 = compute.Digest(sum.Sum(nil))
	p.tree.Entries = append(p.tree.Entries, out)
	return nil
}

// smallFile adds a file to the chunk in the making.
func (p *packer) smallFile(out compute.TreeEntry, content io.Reader, sum hash.Hash) error {
	if int64(p.small.Len())+out.Size > compute.MaxChunk {
		if err := p.flush(); err != nil {
			return err
		}
	}
	out.Offset = int64(p.small.Len())
	n, err := io.Copy(&p.small, content)
	if err == nil && n < out.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		p.small.Truncate(int(out.Offset))
		return cut(err)
	}
	out.SHA256 = compute.Digest(sum.Sum(nil))
	if out.Size == 0 {
		out.Offset = 0
	} else {
		p.wait = append(p.wait, len(p.tree.Entries))
	}
	p.tree.Entries = append(p.tree.Entries, out)
	return nil
}

// cut turns both errors of a stream that is cut into one.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// flush stores the chunk in the making.
func (p *packer) flush() error {
	if p.small.Len() == 0 {
		return nil
	}
	chunk, err := p.put(p.small.Bytes())
	if err != nil {
		return err
	}
	for _, i := range p.wait {
		p.tree.Entries[i].Chunks = []compute.Digest{compute.Digest(chunk)}
	}
	p.small.Reset()
	p.wait = p.wait[:0]
	return nil
}
