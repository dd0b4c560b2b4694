package objects

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// Write is a stream of bytes that becomes content.
type Write struct {
	Actor  command.Actor
	Bucket *compute.Bucket
	Body   io.Reader
	Meta   *compute.ObjectMeta // Metadata that the manifest keeps; nil for none.
	Max    int64               // Bytes; 0 for compute.MaxObjectSize.
	SHA256 bool                // The content has to have its SHA-256 beside the MD5.
}

// Write returns once all bytes of a stream are durable on several nodes. They are live
// when a command refers to the content, which has to be soon. The codes of errors are
// those of blobs, of the reader, and too_large.
func (s *Store) Write(ctx context.Context, w Write) (compute.Content, error) {
	key, err := s.cfg.Keys.Open(w.Bucket)
	if err != nil {
		return compute.Content{}, err
	}
	if w.Max == 0 {
		w.Max = compute.MaxObjectSize
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u := &upload{
		Store: s, Write: w, ctx: ctx, fail: cancel, key: key, begun: s.cfg.Now(),
		md5: md5.New(), sha: sha256.New(), //nolint:gosec // As above.
		ahead: make(chan struct{}, uploadAhead), newer: s.cfg.SealsChunks(), summed: closed(),
	}
	content, err := u.run()
	if err != nil {
		u.puts.Wait() // Nothing may use the memory that was given back.
		u.abandon()
		return compute.Content{}, err
	}
	return content, nil
}

// upload is one Write in progress.
type upload struct {
	*Store
	Write

	ctx   context.Context //nolint:containedctx // The context of one call of Write.
	fail  context.CancelCauseFunc
	key   Key
	newer bool      // Chunks are sealed by SealChunk.
	begun time.Time // Or the last checkpoint.
	size  int64

	summed chan struct{} // Closed once md5 and sha have all chunks.
	md5    hash.Hash
	sha    hash.Hash
	large  atomic.Int32 // Large chunks on their way.

	ahead  chan struct{} // Holds one token per chunk on its way.
	puts   sync.WaitGroup
	chunks []*chunk // Their blobs are known once puts is done.
	kept   int      // How many of chunks are in parts of the upload.

	id       compute.ObjectUploadID // The upload whose parts keep the chunks; zero for none.
	parts    int
	revision uint64
}

// run reads the body to its end.
func (u *upload) run() (compute.Content, error) {
	for {
		data, give, err := u.read()
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			give()
			return compute.Content{}, err
		}
		if len(data) == 0 {
			give()
			break
		}
		if u.size += int64(len(data)); u.size > u.Max {
			give()
			return compute.Content{}, compute.Errorf(compute.CodeTooLarge, "A file has at most %d bytes.", u.Max).
				Named("file_too_large")
		}
		if err := u.put(data, give); err != nil {
			return compute.Content{}, err
		}
		if ended {
			break
		}
		if u.cfg.Now().Sub(u.begun) >= u.cfg.Checkpoint {
			if err := u.checkpoint(); err != nil {
				return compute.Content{}, err
			}
		}
	}
	if err := u.settle(); err != nil {
		return compute.Content{}, err
	}
	return u.finish()
}

// read returns the next chunk, and a function that gives back its place in memory. Small
// chunks need none. The error is io.EOF after the last one.
func (u *upload) read() (data []byte, give func(), err error) {
	give = func() {}
	buf, begun := make([]byte, 0, firstBuffer), u.cfg.Now()
	for len(buf) < compute.MaxChunk {
		if len(buf) == cap(buf) {
			size := 4 * cap(buf) // Beyond smallBuffer there is one size: others would be copied for nothing.
			if size > smallBuffer {
				if give, err = u.places.take(u.ctx, u.Actor.Org); err != nil {
					return nil, func() {}, err
				}
				begun = u.cfg.Now() // The client did not make it wait.
			}
			buf = append(buffer(size)[:0], buf...)
		}
		n, err := u.Body.Read(buf[len(buf):min(cap(buf), compute.MaxChunk)])
		buf = buf[:len(buf)+n]
		if err != nil {
			return buf, give, err
		}
		if u.ctx.Err() != nil {
			return buf, give, context.Cause(u.ctx)
		}
		// The first chunk may be slow while it is small. Later ones would delay a checkpoint.
		if (len(buf) > smallBuffer || len(u.chunks) > 0) && u.cfg.Now().Sub(begun) > chunkTime {
			return buf, give, compute.Errorf(compute.CodeTimeout,
				"The file comes too slowly: %d bytes in the last %s.", len(buf), chunkTime)
		}
	}
	return buf, give, nil
}

// put has a chunk hashed, encrypted and stored while the next one is read.
func (u *upload) put(data []byte, give func()) error {
	select {
	case u.ahead <- struct{}{}:
	case <-u.ctx.Done():
		give()
		return context.Cause(u.ctx)
	}
	c := &chunk{size: int64(len(data))}
	u.chunks = append(u.chunks, c)
	var users atomic.Int32
	users.Store(2)
	used := func() {
		if users.Add(-1) == 0 {
			reuse(data)
		}
	}
	needed := make(chan struct{})
	leave := u.enter(data)
	summed := u.sum(data, used, needed)
	u.puts.Go(func() {
		defer func() { <-u.ahead }()
		defer leave()
		defer give()
		sealed, err := u.seal(c, data)
		used()
		free := false
		if err == nil {
			c.blob, free, err = u.cfg.Blobs.Lend(u.ctx, sealed)
		}
		if free {
			reuse(sealed)
		}
		if err != nil {
			u.fail(err)
		}
		close(needed)
		<-summed // Otherwise chunks would pile up for the hashes.
	})
	return nil
}

// seal encrypts a chunk, a large one into memory that can be given to reuse.
func (u *upload) seal(c *chunk, data []byte) (sealed []byte, err error) {
	if !u.newer {
		return u.key.Seal(data, []byte(forChunk))
	}
	var dst []byte // A small chunk has no place: it must not take a large buffer.
	if len(data) > smallBuffer {
		dst = buffer(len(data) + sealedRoom)[:0]
	}
	sealed, c.iv, err = u.key.SealChunk(dst, data, []byte(forChunk))
	return sealed, err
}

// sum adds a chunk to the hashes of the content, behind those before it, and calls used. It
// returns a channel that is closed once it has, for large chunks while other goroutines
// encrypt and store them: MD5 takes longer than all else. It may wait for chunks of other
// uploads until needed is closed.
func (u *upload) sum(data []byte, used func(), needed <-chan struct{}) <-chan struct{} {
	before := u.summed
	if len(data) <= smallBuffer {
		<-before
		u.md5.Write(data)
		if u.SHA256 {
			u.sha.Write(data)
		}
		used()
		return before
	}
	u.summed = make(chan struct{})
	after := u.summed
	go func() {
		defer close(after)
		defer used()
		<-before
		var sha sync.WaitGroup
		if u.SHA256 {
			sha.Go(func() { u.sha.Write(data) })
		}
		u.md5s.Write(u.md5, data, needed)
		sha.Wait()
	}()
	return after
}

// enter tells the MD5s of others that a large chunk is on its way, and leave that it has arrived.
func (u *upload) enter(data []byte) (leave func()) {
	if len(data) <= smallBuffer {
		return func() {}
	}
	if u.large.Add(1) == 1 {
		u.md5s.Enter()
	}
	return func() {
		if u.large.Add(-1) == 0 {
			u.md5s.Leave()
		}
	}
}

// closed returns a channel that is closed.
func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// settle waits until all chunks are durable.
func (u *upload) settle() error {
	u.puts.Wait() // Also for the hashes.
	return context.Cause(u.ctx)
}

// listed returns the chunks from a number on.
func (u *upload) listed(from int) []chunk {
	out := make([]chunk, 0, len(u.chunks)-from)
	for _, c := range u.chunks[from:] {
		out = append(out, *c)
	}
	return out
}

// finish returns the content, whose manifest is durable where it needs one.
func (u *upload) finish() (compute.Content, error) {
	out := compute.Content{
		Size: u.size, ETag: compute.ETag(u.md5.Sum(nil)), SHA256: compute.Hash(u.sha.Sum(nil)),
		Upload: u.id, Parts: u.revision,
	}
	var err error
	out.Blob, out.Whole, err = u.store(u.ctx, u.key, u.listed(0), u.Write.Meta)
	return out, err
}

// store returns the blob of some chunks, and whether it is the only one of them itself.
func (s *Store) store(
	ctx context.Context, key Key, chunks []chunk, meta *compute.ObjectMeta,
) (compute.Hash, bool, error) {
	m := manifest{chunks: chunks}
	if meta != nil && !meta.Short() {
		var err error
		if m.sealed, err = sealMeta(key, meta); err != nil {
			return compute.Hash{}, false, err
		}
	}
	switch {
	case len(m.sealed) > 0:
	case len(chunks) == 0:
		return compute.Hash{}, false, nil
	case len(chunks) == 1:
		return chunks[0].blob, true, nil
	}
	blob, err := s.cfg.Blobs.Put(ctx, m.encode())
	if err != nil {
		return blob, false, fmt.Errorf("put manifest: %w", err)
	}
	return blob, false, nil
}

// checkpoint records the chunks so far as a part of an upload, which keeps them.
func (u *upload) checkpoint() error {
	if err := u.settle(); err != nil {
		return err
	}
	if u.id.IsZero() {
		begin := command.StartObjectUpload{Op: u.op(), Actor: u.Actor}
		begin.Upload.ID.UUID = u.cfg.NewID()
		u.id = begin.Upload.ID // Also if the outcome is not known: it is aborted then.
		if _, err := u.propose(u.ctx, begin); err != nil {
			return err
		}
	}
	part := compute.ObjectPart{Upload: u.id, Number: u.parts + 1}
	chunks := u.listed(u.kept)
	for _, c := range chunks {
		part.Size += c.size
	}
	var err error
	if part.Blob, part.Whole, err = u.store(u.ctx, u.key, chunks, nil); err != nil {
		return err
	}
	result, err := u.propose(u.ctx, command.PutObjectPart{Op: u.op(), Actor: u.Actor, Part: part})
	if err != nil {
		return err
	}
	u.parts, u.revision, u.kept, u.begun = part.Number, uint64(result.Count), len(u.chunks), u.cfg.Now()
	return nil
}

// op names a command of this upload. It may be proposed again when its outcome is not
// known, and counts once.
func (u *upload) op() command.Op {
	return command.Op{ID: compute.OpID{UUID: u.cfg.NewID()}, Org: u.Actor.Org}
}

// abandonTime is how long an upload that failed may take to clean up. An upload that
// it cannot abort expires.
const abandonTime = 5 * time.Second

// abandon aborts a failed upload, whose parts keep its chunks.
func (u *upload) abandon() {
	if u.id.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abandonTime)
	defer cancel()
	if _, err := u.propose(ctx, command.AbortObjectUpload{Actor: u.Actor, Upload: u.id}); err != nil {
		u.logger.Debug("upload not aborted", "err", err)
	}
}

// propose proposes a command, whose refusal is an error.
func (s *Store) propose(ctx context.Context, cmd command.Command) (command.Result, error) {
	result, _, err := s.cfg.Propose(ctx, cmd)
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	return result, err
}

// Join returns the content that parts are together, one behind the other.
func (s *Store) Join(
	ctx context.Context, b *compute.Bucket, parts []*compute.ObjectPart, meta *compute.ObjectMeta,
) (compute.Content, error) {
	key, err := s.cfg.Keys.Open(b)
	if err != nil {
		return compute.Content{}, err
	}
	var chunks []chunk
	var out compute.Content
	sums := md5.New() //nolint:gosec // As above.
	for _, p := range parts {
		more, err := s.chunksOf(ctx, p.Blob, p.Whole, p.Size)
		if err != nil {
			return compute.Content{}, err
		}
		chunks = append(chunks, more...)
		sums.Write(p.ETag[:])
		out.Size += p.Size
	}
	if out.Size > compute.MaxObjectSize || len(chunks) > maxChunks {
		return compute.Content{}, compute.Errorf(compute.CodeTooLarge, "A file has at most %d bytes.", compute.MaxObjectSize).
			Named("file_too_large")
	}
	out.ETag = compute.ETag(sums.Sum(nil))
	out.Blob, out.Whole, err = s.store(ctx, key, chunks, meta)
	return out, err
}

// Describe returns the blob of an object with other metadata, and the same content.
func (s *Store) Describe(
	ctx context.Context, b *compute.Bucket, o *compute.Object, meta *compute.ObjectMeta,
) (compute.Hash, bool, error) {
	chunks, err := s.chunksOf(ctx, o.Blob, o.Whole, o.Size)
	if err != nil {
		return compute.Hash{}, false, err
	}
	key, err := s.cfg.Keys.Open(b)
	if err != nil {
		return compute.Hash{}, false, err
	}
	return s.store(ctx, key, chunks, meta)
}
