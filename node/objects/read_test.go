package objects_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
)

// read returns what an object has.
func (b *bench) read(o *compute.Object) ([]byte, error) {
	var out bytes.Buffer
	err := b.Copy(b.t.Context(), bucket(), o, &out, 0, o.Size)
	return out.Bytes(), err
}

// TestOlderServersCanRead holds that nothing is written that a server of an older version
// cannot read, and that everything that was written stays readable, also together.
func TestOlderServersCanRead(t *testing.T) {
	b := newBench(t)
	data := content(compute.MaxChunk + 9)
	b.old = true
	before, older := b.write(data, nil)
	for _, blob := range b.blobs {
		if blob[0] == 2 {
			t.Error("an older server cannot read a blob")
		}
	}
	b.old = false
	after, newer := b.write(data, nil)
	if before.Blob == after.Blob || b.blobs[before.Blob][0] != 1 || b.blobs[after.Blob][0] != 2 {
		t.Error("newer servers write as older ones do")
	}
	var parts []*compute.ObjectPart
	for i, c := range []compute.Content{older, newer} {
		parts = append(parts, &compute.ObjectPart{Number: i + 1, Size: c.Size, ETag: c.ETag, Blob: c.Blob, Whole: c.Whole})
	}
	joined, err := b.Join(t.Context(), bucket(), parts, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []*compute.Object{before, after} {
		if got, err := b.read(o); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
	}
	o := &compute.Object{Size: joined.Size, Blob: joined.Blob, Whole: joined.Whole}
	if got, err := b.read(o); err != nil || !bytes.Equal(got, append(bytes.Clone(data), data...)) {
		t.Errorf("joined: %d bytes came, %v", len(got), err)
	}
}

// TestLocalChunksAreAuthenticated holds that nothing else than a chunk is served in its
// place, whatever the disk returns: it is read in the way that repairs it.
func TestLocalChunksAreAuthenticated(t *testing.T) {
	b := newBench(t)
	data := content(2*compute.MaxChunk + 5)
	o, _ := b.write(data, nil)
	b.gets = 0
	if got, err := b.read(o); err != nil || !bytes.Equal(got, data) || b.gets != 1 {
		t.Errorf("%d bytes came with %d checked reads, %v; want one, of the manifest", len(got), b.gets, err)
	}
	sealed := map[compute.Hash][]byte{}
	var last []byte
	for hash, blob := range b.blobs {
		if hash != o.Blob {
			sealed[hash], last = blob, blob
		}
	}
	for name, change := range map[string]func(blob []byte) []byte{
		"flipped bit":  func(blob []byte) []byte { blob = bytes.Clone(blob); blob[len(blob)/2] ^= 8; return blob },
		"flipped head": func(blob []byte) []byte { blob = bytes.Clone(blob); blob[0] ^= 3; return blob },
		"cut":          func(blob []byte) []byte { return blob[:len(blob)-1] },
		"grown":        func(blob []byte) []byte { return append(bytes.Clone(blob), 0) },
		"empty":        func([]byte) []byte { return nil },
		"another one":  func([]byte) []byte { return last },
	} {
		for hash, blob := range sealed {
			b.blobs[hash] = change(blob)
		}
		if got, err := b.read(o); err == nil && !bytes.Equal(got, data) {
			t.Errorf("%s: other bytes came", name)
		} else if err == nil {
			t.Errorf("%s: it was read", name)
		}
		b.mend = func(hash compute.Hash) {
			if sealed[hash] != nil {
				b.blobs[hash] = sealed[hash]
			}
		}
		if got, err := b.read(o); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: after its repair %d bytes came, %v", name, len(got), err)
		}
		b.mend = nil
	}
}

// stuck is a writer that waits before it returns.
type stuck struct{ next chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.next
	return len(p), nil
}

// countReads returns a function for a bubble of synctest that returns how many chunks were
// read since its last call.
func (b *bench) countReads() func() int {
	read := 0
	b.peek = func(compute.Hash) bool { b.mu.Lock(); defer b.mu.Unlock(); read++; return true }
	return func() int {
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		n := read
		read = 0
		return n
	}
}

// TestReadsAhead holds that the chunks behind the one that is written are read meanwhile,
// that no more of them are in memory than there are places, and that all places come back.
func TestReadsAhead(t *testing.T) {
	const chunks, readers = 6, 10
	b := newBench(t)
	o, _ := b.write(content(chunks*compute.MaxChunk), nil)
	count := b.countReads()
	synctest.Test(t, func(t *testing.T) {
		begin := func(ctx context.Context, w io.Writer) chan error {
			ended := make(chan error, 1)
			go func() { ended <- b.Copy(ctx, bucket(), o, w, 0, o.Size) }()
			return ended
		}
		alone := func() {
			t.Helper()
			w := stuck{make(chan struct{})}
			ended := begin(t.Context(), w)
			for at, want := range []int{3, 1, 1, 1, 0, 0} {
				if n := count(); n != want {
					t.Errorf("while chunk %d is written %d were read, want %d", at, n, want)
				}
				w.next <- struct{}{}
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		alone()
		ctx, cancel := context.WithCancel(t.Context())
		w := stuck{make(chan struct{})}
		var all []chan error
		for range readers {
			all = append(all, begin(ctx, w))
		}
		if n := count(); n != readers+4 {
			t.Errorf("%d readers have %d chunks, want %d", readers, n, readers+4)
		}
		cancel()
		close(w.next)
		for _, ended := range all {
			<-ended //nolint:errcheck // It was cancelled, or had all chunks.
		}
		count()
		alone()
	})
}

// TestSlowReadersKeepNoPlaces holds that readers that take nothing for a while give back the
// places of all chunks, that they go on without one, and get places again once they take
// chunks in time.
func TestSlowReadersKeepNoPlaces(t *testing.T) {
	const chunks, readers = 6, 2
	b := newBench(t)
	data := content(chunks * compute.MaxChunk)
	o, _ := b.write(data, nil)
	count := b.countReads()
	synctest.Test(t, func(t *testing.T) {
		type reader struct {
			stuck
			bytes.Buffer
			ended chan error
		}
		begin := func() *reader {
			r := &reader{stuck: stuck{make(chan struct{})}, ended: make(chan error, 1)}
			go func() { r.ended <- b.Copy(t.Context(), bucket(), o, io.MultiWriter(&r.Buffer, r.stuck), 0, o.Size) }()
			return r
		}
		var slow []*reader
		for range readers {
			slow = append(slow, begin())
		}
		if n := count(); n != readers+4 {
			t.Errorf("%d readers have %d chunks, want %d", readers, n, readers+4)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // The bubble's clock.
		quick := begin()
		if n := count(); n != 3 {
			t.Errorf("beside slow readers one has %d chunks, want 3", n)
		}
		for range chunks {
			quick.next <- struct{}{}
		}
		if err := <-quick.ended; err != nil || !bytes.Equal(quick.Bytes(), data) {
			t.Errorf("%d bytes came, %v", quick.Len(), err)
		}
		count()
		one := slow[0]
		for at, want := range []int{1, 3, 1, 0, 0, 0} { // The second is written in time.
			one.next <- struct{}{}
			if n := count(); n != want {
				t.Errorf("after chunk %d a reader that was slow has %d more, want %d", at, n, want)
			}
		}
		for _, r := range slow {
			close(r.next)
			if err := <-r.ended; err != nil || !bytes.Equal(r.Bytes(), data) {
				t.Errorf("%d bytes came, %v", r.Len(), err)
			}
		}
	})
}

// TestReadsEnd holds that the error of the writer and the end of the context end a read.
func TestReadsEnd(t *testing.T) {
	b := newBench(t)
	o, _ := b.write(content(3*compute.MaxChunk), nil)
	gone := errors.New("the client is gone")
	read, write := io.Pipe()
	read.CloseWithError(gone)
	if err := b.Copy(t.Context(), bucket(), o, write, 0, o.Size); !errors.Is(err, gone) {
		t.Errorf("it ended with %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Copy(ctx, bucket(), o, io.Discard, 0, o.Size); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	short := *o
	short.Size++
	if err := b.Copy(t.Context(), bucket(), &short, io.Discard, 0, short.Size); err == nil {
		t.Error("bytes came that are not there")
	}
}
