package objects

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"berth/compute"
)

// sealedRoom is how much longer than a chunk its ciphertext can be.
const sealedRoom = 64

// fetched is a chunk that was read.
type fetched struct {
	data []byte
	err  error
	buf  []byte // Has the data, for reuse; nil if that is other memory.
	give func() // Gives back its place, once.
}

// done gives back the memory of the chunk.
func (f *fetched) done() {
	reuse(f.buf)
	f.give()
}

// reading is one Copy in progress.
type reading struct {
	*Store

	key Key
	org compute.OrgID

	mu sync.Mutex

	chunks  []chunk   // Those that are not being fetched yet.
	pending []pending // Those that are, in order.
	slow    bool      // Its last chunk took longer than slowChunk to be written.
}

// pending is a chunk that is being fetched.
type pending struct {
	chunk

	to chan *fetched // Takes the chunk without a reader.
}

// Copy writes length bytes of an object from an offset on. While it writes a chunk, the
// next ones are read and decrypted, as far as all reads together have memory for it. Writers
// that are slow do not keep this memory from others.
func (s *Store) Copy(
	ctx context.Context, b *compute.Bucket, o *compute.Object, w io.Writer, from, length int64,
) error {
	chunks, err := s.chunksOf(ctx, o.Blob, o.Whole, o.Size)
	if err != nil {
		return err
	}
	key, err := s.cfg.Keys.Open(b)
	if err != nil {
		return err
	}
	for len(chunks) > 0 && from >= chunks[0].size {
		from -= chunks[0].size
		chunks = chunks[1:]
	}
	needed, bytes := 0, int64(0)
	for ; needed < len(chunks) && bytes < from+length; needed++ {
		bytes += chunks[needed].size
	}
	if bytes < from+length {
		return fmt.Errorf("object %.200q: its chunks are shorter than it by %d bytes", o.Key, from+length-bytes)
	}
	r := reading{Store: s, key: key, org: b.Org, chunks: chunks[:needed]}
	return r.copy(ctx, w, from, length)
}

// copy writes the chunks.
func (r *reading) copy(ctx context.Context, w io.Writer, from, length int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.drain()
	defer cancel()
	for length > 0 {
		next := <-r.next(ctx)
		slow := time.AfterFunc(slowChunk, func() {
			next.give() // A chunk that is being written needs no place.
			r.giveAhead()
		})
		n, err := next.write(w, from, length)
		if slow.Stop() {
			r.keptUp()
		}
		if err != nil {
			return err
		}
		from, length = 0, length-n
	}
	return nil
}

// next has the next chunks fetched, and returns the first of them.
func (r *reading) next(ctx context.Context) <-chan *fetched {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		r.start(ctx, func() {})
	}
	next := r.pending[0].to
	r.pending = r.pending[1:]
	if !r.slow {
		r.startAhead(ctx, readAhead)
	}
	return next
}

// giveAhead gives back the places of the chunks ahead: the writer does not need them soon,
// and others may. They are fetched again.
func (r *reading) giveAhead() {
	r.mu.Lock()
	ahead := r.pending
	again := make([]chunk, 0, len(ahead)+len(r.chunks))
	for _, p := range ahead {
		again = append(again, p.chunk)
	}
	r.pending, r.chunks, r.slow = nil, append(again, r.chunks...), true
	r.mu.Unlock()
	for _, p := range ahead {
		(<-p.to).done()
	}
}

// keptUp notes that a chunk was written in time.
func (r *reading) keptUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = false
}

// write writes at most length bytes of a chunk.
func (f *fetched) write(w io.Writer, from, length int64) (int64, error) {
	defer f.done()
	if f.err != nil {
		return 0, f.err
	}
	data := f.data[from:]
	n, err := w.Write(data[:min(length, int64(len(data)))])
	return int64(n), err
}

// startAhead fetches the next chunks until so many are pending, as far as there are places.
// The caller holds the lock.
func (r *reading) startAhead(ctx context.Context, most int) {
	for len(r.chunks) > 0 && len(r.pending) < most {
		if _, ok := r.ahead.try(r.org); !ok {
			return
		}
		r.start(ctx, func() { r.ahead.give(r.org) })
	}
}

// start fetches the next chunk, with whose memory give is called. The caller holds the lock.
func (r *reading) start(ctx context.Context, give func()) {
	p := pending{r.chunks[0], make(chan *fetched, 1)}
	r.chunks, r.pending = r.chunks[1:], append(r.pending, p)
	go func() {
		f := r.fetch(ctx, r.key, p.chunk)
		f.give = sync.OnceFunc(give)
		p.to <- f
	}()
}

// drain gives back the memory of all pending chunks.
func (r *reading) drain() {
	r.mu.Lock()
	ahead := r.pending
	r.pending = nil
	r.mu.Unlock()
	for _, p := range ahead {
		(<-p.to).done()
	}
}

// fetch returns the plaintext of a chunk.
func (s *Store) fetch(ctx context.Context, key Key, c chunk) *fetched {
	if ctx.Err() != nil {
		return &fetched{err: ctx.Err()}
	}
	if c.iv != (IV{}) {
		buf := buffer(int(c.size) + sealedRoom)
		if data, ok := s.peek(key, c, buf); ok {
			return &fetched{data: data, buf: buf}
		}
		reuse(buf)
	}
	sealed, err := s.cfg.Blobs.Get(ctx, c.blob)
	if err != nil {
		return &fetched{err: err}
	}
	data, err := key.OpenChunk(sealed, []byte(forChunk), c.iv)
	if err == nil && int64(len(data)) != c.size {
		err = fmt.Errorf("it has %d bytes, not %d", len(data), c.size)
	}
	if err != nil {
		return &fetched{err: fmt.Errorf("chunk %s: %w", compute.Digest(c.blob), err)}
	}
	return &fetched{data: data}
}

// peek returns the plaintext of a chunk whose ciphertext is on this node's disk. Its
// authentication takes the place of comparing the hash of the blob, which takes as long
// again: with the IV that the manifest has, only this chunk can be decrypted.
func (s *Store) peek(key Key, c chunk, buf []byte) ([]byte, bool) {
	sealed, ok := s.cfg.Blobs.Peek(c.blob, buf)
	if !ok {
		return nil, false
	}
	data, err := key.OpenChunk(sealed, []byte(forChunk), c.iv)
	return data, err == nil && int64(len(data)) == c.size
}
