package storage

import (
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // ETags are MD5 sums; the cluster checks a SHA-256.
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

const mib = 1 << 20

// mover moves files, and large ones in parts: several at a time, and those that have come
// are not moved again after a failure.
type mover struct {
	*client.Client
	bar   *cli.Bar
	part  int64         // Bytes of a part; a file of twice as many has parts.
	slots chan struct{} // Holds one token per transfer.
}

// newMover returns a mover that does as many transfers at a time as the flags say.
func (o *options) newMover(c *client.Client, bar *cli.Bar) *mover {
	return &mover{Client: c, bar: bar, part: int64(o.part) * mib, slots: make(chan struct{}, o.jobs)}
}

// take waits for a transfer to be allowed. The caller calls release at its end.
func (m *mover) take(ctx context.Context) (release func(), err error) {
	select {
	case m.slots <- struct{}{}:
		return func() { <-m.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// piece is a part of a file.
type piece struct {
	number   int // From 1.
	at, size int64
}

// pieces returns the parts of a file, nil if it is moved as a whole.
func (m *mover) pieces(size int64) []piece {
	if size < 2*m.part {
		return nil
	}
	most := int64(compute.MaxObjectParts)
	length := max(m.part, (size+most-1)/most)
	return cut(size, length)
}

// cut returns parts of a length, of which the last one may be shorter.
func cut(size, length int64) (all []piece) {
	for at := int64(0); at < size; at += length {
		all = append(all, piece{len(all) + 1, at, min(length, size-at)})
	}
	return all
}

// each does something with each part, several at a time.
func (m *mover) each(ctx context.Context, parts []piece, do func(ctx context.Context, p piece) error) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(cap(m.slots))
	for _, p := range parts {
		group.Go(func() error {
			release, err := m.take(within)
			if err != nil {
				return err
			}
			defer release()
			return do(within, p)
		})
	}
	return group.Wait()
}

// sumOfPiece returns the MD5 of a part of a file.
func sumOfPiece(file io.ReaderAt, p piece) (string, error) {
	sum := md5.New() //nolint:gosec // As above.
	if _, err := io.Copy(sum, io.NewSectionReader(file, p.at, p.size)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// begun returns the newest upload of a key whose parts fit the file, or a new one. One
// without parts may be another client's that begins now.
func (m *mover) begun(ctx context.Context, key string, parts []piece) (wire.UploadState, error) {
	uploads, err := m.Uploads(ctx, key)
	if err != nil {
		return wire.UploadState{}, err
	}
	slices.SortFunc(uploads, func(a, b wire.PartialUpload) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	for _, u := range uploads {
		state, err := m.UploadState(ctx, u.UploadID)
		if err == nil && len(state.Parts) > 0 && fit(state.Parts, parts) {
			return state, nil
		}
	}
	begun, err := m.StartUpload(ctx, wire.NewUpload{Key: key})
	return wire.UploadState{PartialUpload: wire.PartialUpload{UploadID: begun.UploadID, Key: key}}, err
}

// fit reports whether parts that have come have the sizes of those of a file.
func fit(have []wire.UploadPart, parts []piece) bool {
	for _, p := range have {
		if p.Number > len(parts) || p.Size != parts[p.Number-1].size {
			return false
		}
	}
	return true
}

// sendParts stores a file in parts. It skips parts that an earlier try has sent,
// by whomever, if their content is the same.
func (m *mover) sendParts(ctx context.Context, file *os.File, key string, parts []piece) (moved, error) {
	upload, err := m.begun(ctx, key, parts)
	if err != nil {
		return moved{}, err
	}
	have := map[int]wire.UploadPart{}
	for _, p := range upload.Parts {
		have[p.Number] = p
	}
	var mu sync.Mutex
	done := moved{Key: key, Action: "sent"}
	complete := wire.CompleteUpload{Key: key, Parts: make([]wire.ChosenPart, len(parts))}
	err = m.each(ctx, parts, func(ctx context.Context, p piece) (err error) {
		known, came := have[p.number]
		if came {
			sum, err := sumOfPiece(file, p)
			if err != nil {
				return err
			}
			came = sum == known.ETag
		}
		if came {
			m.bar.Add(p.size)
		} else if known, err = m.sendPart(ctx, upload.UploadID, file, p); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if came {
			done.Resumed += p.size
		}
		complete.Parts[p.number-1] = wire.ChosenPart{Number: p.number, ETag: known.ETag}
		return nil
	})
	if err != nil {
		return moved{}, err
	}
	out, err := m.CompleteUpload(ctx, upload.UploadID, complete)
	done.Size, done.ETag = out.Size, out.ETag
	return done, err
}

// sendPart stores a part, and compares the stored content with the bytes that
// were read.
func (m *mover) sendPart(ctx context.Context, upload string, file *os.File, p piece) (wire.UploadPart, error) {
	sum := md5.New() //nolint:gosec // As above.
	out, err := m.UploadPart(ctx, upload, p.number, p.size, func() (io.ReadCloser, error) {
		sum.Reset()
		return &counted{ReadCloser: io.NopCloser(io.NewSectionReader(file, p.at, p.size)), also: sum, bar: m.bar}, nil
	})
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != out.ETag {
		err = fmt.Errorf("part %d is not there as it was sent: try again", p.number)
	}
	return out, err
}

// fetchParts writes a stored file to a file, whose end has a byte for each part: 1 once it
// is durable. It fetches those that have not come with an earlier try.
func (m *mover) fetchParts(ctx context.Context, f wire.File, file *os.File, parts []piece) (resumed int64, err error) {
	size := f.Size + int64(len(parts))
	info, err := file.Stat()
	if err == nil && info.Size() != size {
		err = errors.Join(file.Truncate(0), file.Truncate(size)) // Cut otherwise: nothing of it counts.
	}
	if err != nil {
		return 0, err
	}
	marks := make([]byte, len(parts))
	if _, err := file.ReadAt(marks, f.Size); err != nil {
		return 0, err
	}
	var missing []piece
	for i, p := range parts {
		if marks[i] == 1 {
			resumed += p.size
			m.bar.Add(p.size)
			continue
		}
		missing = append(missing, p)
	}
	err = m.each(ctx, missing, func(ctx context.Context, p piece) error {
		to := io.MultiWriter(io.NewOffsetWriter(file, p.at), barWriter{m.bar})
		if _, err := m.DownloadPart(ctx, f.Key, f.ETag, p.at, p.size, to); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		_, err := file.WriteAt([]byte{1}, f.Size+int64(p.number-1))
		return err
	})
	if err == nil {
		err = file.Truncate(f.Size)
	}
	return resumed, err
}

// partSizes returns the sizes of parts that this and other clients use.
func (m *mover) partSizes(size int64) []int64 {
	all := []int64{5 * mib, 8 * mib, 16 * mib, 32 * mib, 64 * mib, m.part}
	if own := m.pieces(size); own != nil {
		all = append(all, own[0].size)
	}
	return all
}

// hasTag reports whether the content of a file has an ETag. For a file that came in parts
// it tries the usual sizes of parts; known is false if none gives as many parts.
func (m *mover) hasTag(file io.ReaderAt, size int64, tag string) (has, known bool, err error) {
	_, count, inParts := strings.Cut(tag, "-")
	if !inParts {
		sum, err := sumOfPiece(file, piece{size: size})
		return sum == tag, true, err
	}
	tried := map[int64]bool{}
	for _, length := range m.partSizes(size) {
		parts := cut(size, length)
		if tried[length] || fmt.Sprint(len(parts)) != count {
			continue
		}
		tried[length], known = true, true
		sums := md5.New() //nolint:gosec // As above.
		for _, p := range parts {
			sum, err := sumOfPiece(file, p)
			if err != nil {
				return false, false, err
			}
			raw, _ := hex.DecodeString(sum) // It was just encoded.
			sums.Write(raw)
		}
		if fmt.Sprintf("%x-%s", sums.Sum(nil), count) == tag {
			return true, true, nil
		}
	}
	return false, known, nil
}
