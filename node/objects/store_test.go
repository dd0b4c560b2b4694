package objects_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/node/objects"
)

// bench is a Store over blobs in memory and a clock that the test moves.
type bench struct {
	*objects.Store
	t testing.TB

	mu       sync.Mutex
	blobs    map[compute.Hash][]byte
	puts     int
	fail     error // The error of the next puts.
	now      time.Time
	proposed []command.Command
	ids      byte
	old      bool                    // Some server knows no chunks of version 2.
	peek     func(compute.Hash) bool // Whether a blob is on this node's disk; nil for all.
	mend     func(compute.Hash)      // Repairs a blob before it is read with a check; nil for nothing.
	gets     int
	lent     [][]byte // The data of Lend, if keep is set: it is not free then.
	keep     bool
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, blobs: make(map[compute.Hash][]byte), now: time.Unix(1e9, 0)}
	b.Store = objects.New(objects.Config{
		Blobs: b, Keys: xorKeys{}, Propose: b.propose, NewID: func() compute.UUID { b.ids++; return compute.UUID{b.ids} },
		Now:    func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now },
		Logger: slog.New(slog.DiscardHandler), Checkpoint: time.Minute,
		SealsChunks: func() bool { b.mu.Lock(); defer b.mu.Unlock(); return !b.old },
	})
	return b
}

func (b *bench) Put(ctx context.Context, data []byte) (compute.Hash, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.puts++
	if b.fail != nil {
		return compute.Hash{}, b.fail
	}
	hash := compute.Hash(sha256.Sum256(data))
	b.blobs[hash] = bytes.Clone(data)
	return hash, ctx.Err()
}

// Lend overwrites data that it has put: nobody may use it.
func (b *bench) Lend(ctx context.Context, data []byte) (compute.Hash, bool, error) {
	hash, err := b.Put(ctx, data)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keep {
		b.lent = append(b.lent, data)
		return hash, false, err
	}
	for i := range data {
		data[i] = 0xaa
	}
	return hash, true, err
}

func (b *bench) Get(_ context.Context, hash compute.Hash) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gets++
	if b.mend != nil {
		b.mend(hash)
	}
	data, ok := b.blobs[hash]
	if !ok {
		return nil, compute.Errorf(compute.CodeNotFound, "no blob")
	}
	if sha256.Sum256(data) != hash {
		return nil, errors.New("the blob is damaged")
	}
	return bytes.Clone(data), nil
}

func (b *bench) Peek(hash compute.Hash, buf []byte) ([]byte, bool) {
	if b.peek != nil && !b.peek(hash) {
		return nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.blobs[hash]
	return buf[:copy(buf, data)], ok && len(data) <= len(buf)
}

func (b *bench) propose(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.proposed = append(b.proposed, cmd)
	return command.Result{Count: len(b.proposed)}, 1, nil
}

// pass lets time pass.
func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// xorKeys stands in for encryption: it shows that plaintext is nowhere.
type xorKeys struct{}

type xorKey byte

func (xorKeys) New(org compute.OrgID) (*compute.Bucket, error) {
	return &compute.Bucket{Org: org, Sealed: []byte{0x55}}, nil
}

func (xorKeys) Open(b *compute.Bucket) (objects.Key, error) {
	if len(b.Sealed) == 0 {
		return nil, errors.New("the key is gone")
	}
	return xorKey(b.Sealed[0]), nil
}

func (k xorKey) Seal(data, kind []byte) ([]byte, error) {
	out := append([]byte(nil), kind...)
	for _, c := range data {
		out = append(out, c^byte(k))
	}
	return out, nil
}

func (k xorKey) Open(sealed, kind []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(sealed, kind)
	if !ok {
		return nil, errors.New("of another kind")
	}
	out := bytes.Clone(rest)
	for i := range out {
		out[i] ^= byte(k)
	}
	return out, nil
}

// SealChunk adds a sum to what Seal returns.
func (k xorKey) SealChunk(dst, data, kind []byte) ([]byte, objects.IV, error) {
	iv := md5.Sum(data) //nolint:gosec // It stands in for a keyed hash.
	sealed, err := k.Seal(data, kind)
	return append(append(append(dst, 2), iv[:]...), sealed...), iv, err
}

func (k xorKey) OpenChunk(sealed, kind []byte, iv objects.IV) ([]byte, error) {
	if len(sealed) < 17 || sealed[0] != 2 {
		if iv != (objects.IV{}) {
			return nil, errors.New("without an IV")
		}
		return k.Open(sealed, kind)
	}
	data, err := k.Open(sealed[17:], kind)
	if own := objects.IV(sealed[1:]); err == nil && (own != md5.Sum(data) || iv != (objects.IV{}) && iv != own) { //nolint:gosec // As above.
		err = errors.New("not authentic")
	}
	clear(sealed) // Its memory may be used.
	return data, err
}

func bucket() *compute.Bucket {
	return &compute.Bucket{Org: compute.OrgID{UUID: compute.UUID{1}}, Sealed: []byte{0x55}}
}

func actor() command.Actor { return command.Actor{Org: compute.OrgID{UUID: compute.UUID{1}}} }

// content returns bytes that repeat in no chunk.
func content(n int) []byte {
	data := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(data)
	return data
}

func (b *bench) write(data []byte, meta *compute.ObjectMeta) (*compute.Object, compute.Content) {
	b.t.Helper()
	c, err := b.Write(b.t.Context(), objects.Write{Actor: actor(), Bucket: bucket(), Body: iotest.HalfReader(bytes.NewReader(data)), Meta: meta, SHA256: true})
	if err != nil {
		b.t.Fatal(err)
	}
	return &compute.Object{Key: "k", Size: c.Size, Blob: c.Blob, Whole: c.Whole, ETag: c.ETag}, c
}

// TestWriteAndCopy reads back objects of many sizes, and parts of them.
func TestWriteAndCopy(t *testing.T) {
	b := newBench(t)
	for _, size := range []int{0, 1, 4095, 4096, 300_000, compute.MaxChunk - 1, compute.MaxChunk, compute.MaxChunk + 1, 3*compute.MaxChunk + 17} {
		data := content(size)
		o, c := b.write(data, nil)
		if c.Size != int64(size) || c.ETag != md5.Sum(data) || c.SHA256 != sha256.Sum256(data) || //nolint:gosec // An ETag.
			c.Whole != (size > 0 && size <= compute.MaxChunk) || !c.Upload.IsZero() {
			t.Errorf("%d bytes are %+v", size, c)
		}
		for _, part := range [][2]int{{0, size}, {size / 2, size - size/2}, {size, 0}, {size / 3, size / 3}, {max(0, size-1), min(1, size)}} {
			var out bytes.Buffer
			err := b.Copy(t.Context(), bucket(), o, &out, int64(part[0]), int64(part[1]))
			if err != nil || !bytes.Equal(out.Bytes(), data[part[0]:part[0]+part[1]]) {
				t.Errorf("%d bytes from %d of %d: %d came, %v", part[1], part[0], size, out.Len(), err)
			}
		}
	}
	for _, blob := range b.blobs {
		if bytes.Contains(blob, content(64)) {
			t.Fatal("a blob has plaintext")
		}
	}
}

// TestSameContentIsStoredOnce holds that a second upload of the same bytes adds nothing.
func TestSameContentIsStoredOnce(t *testing.T) {
	b := newBench(t)
	data := content(2*compute.MaxChunk + 5)
	first, _ := b.write(data, nil)
	blobs := len(b.blobs)
	second, _ := b.write(data, nil)
	if first.Blob != second.Blob || len(b.blobs) != blobs {
		t.Errorf("%d blobs became %d", blobs, len(b.blobs))
	}
}

// TestChunksThatAreNotFree holds that the memory of an encrypted chunk is not used again
// while a node may be sent it.
func TestChunksThatAreNotFree(t *testing.T) {
	b := newBench(t)
	b.keep = true
	for i := range 4 {
		b.write(content(2*compute.MaxChunk+i), nil)
	}
	for _, data := range b.lent {
		if b.blobs[sha256.Sum256(data)] == nil {
			t.Fatal("a chunk was overwritten while it was not free")
		}
	}
	if len(b.lent) < 8 {
		t.Errorf("%d chunks came", len(b.lent))
	}
}

// TestMetadata keeps what describes an object beside its content, encrypted, and changes
// it without the content.
func TestMetadata(t *testing.T) {
	b := newBench(t)
	data := content(100)
	meta := &compute.ObjectMeta{Type: "text/plain", Custom: map[string]string{"mtime": "1234567890.5"}}
	o, _ := b.write(data, meta)
	got, err := b.Meta(t.Context(), bucket(), o)
	if err != nil || got.Type != "text/plain" || got.Custom["mtime"] != "1234567890.5" || o.Whole {
		t.Errorf("it is described by %+v, %v", got, err)
	}
	for _, blob := range b.blobs {
		if bytes.Contains(blob, []byte("1234567890.5")) {
			t.Error("metadata is in the clear")
		}
	}
	meta = &compute.ObjectMeta{Type: "image/png", Custom: map[string]string{"a": "b"}}
	if o.Blob, o.Whole, err = b.Describe(t.Context(), bucket(), o, meta); err != nil {
		t.Fatal(err)
	}
	got, err = b.Meta(t.Context(), bucket(), o)
	var out bytes.Buffer
	if copyErr := b.Copy(t.Context(), bucket(), o, &out, 0, o.Size); err != nil || copyErr != nil || got.Type != "image/png" ||
		got.Custom["mtime"] != "" || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("it is %+v, %v, %v", got, err, copyErr)
	}
	meta.Custom["long"] = string(make([]byte, compute.MaxObjectMeta))
	if _, _, err := b.Describe(t.Context(), bucket(), o, meta); compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("too much metadata: %v", err)
	}
}

// TestWriteFails holds that a failure of the reader, of a disk and of the size is the
// error of the write.
func TestWriteFails(t *testing.T) {
	b := newBench(t)
	full := compute.Errorf(compute.CodeNoSpace, "full")
	early := compute.Errorf(compute.CodeInvalid, "ended early")
	for _, test := range []struct {
		name string
		body io.Reader
		fail error
		max  int64
		code compute.Code
	}{
		{"reader", io.MultiReader(bytes.NewReader(content(5<<20)), iotest.ErrReader(early)), nil, 0, compute.CodeInvalid},
		{"disk", bytes.NewReader(content(30 << 20)), full, 0, compute.CodeNoSpace},
		{"size", bytes.NewReader(content(5 << 20)), nil, 5<<20 - 1, compute.CodeTooLarge},
	} {
		b.fail = test.fail
		w := objects.Write{Actor: actor(), Bucket: bucket(), Body: test.body, Max: test.max}
		if _, err := b.Write(t.Context(), w); compute.CodeOf(err) != test.code {
			t.Errorf("%s: %v, want %s", test.name, err, test.code)
		}
	}
	b.fail = nil
	if _, err := b.Write(t.Context(), objects.Write{Actor: actor(), Bucket: &compute.Bucket{}, Body: bytes.NewReader(nil)}); err == nil {
		t.Error("something was written without a key")
	}
}

// TestSlowUploadsEnd holds that one which sends hardly anything gives its place back.
func TestSlowUploadsEnd(t *testing.T) {
	b := newBench(t)
	body := io.MultiReader(bytes.NewReader(content(1<<20)), passing{b, 6 * time.Minute}, bytes.NewReader(content(8<<20)))
	_, err := b.Write(t.Context(), objects.Write{Actor: actor(), Bucket: bucket(), Body: body})
	if compute.CodeOf(err) != compute.CodeTimeout {
		t.Errorf("it ends with %v", err)
	}
}

// TestSlowTailsEnd holds that a small end which takes long cannot delay the checkpoint of
// the chunks before it, while a small file may take long.
func TestSlowTailsEnd(t *testing.T) {
	b := newBench(t)
	trickle := func() (out []io.Reader) {
		for range 15 {
			out = append(out, bytes.NewReader([]byte("x")), passing{b, 5 * time.Minute})
		}
		return out
	}
	body := io.MultiReader(append([]io.Reader{bytes.NewReader(content(compute.MaxChunk))}, trickle()...)...)
	_, err := b.Write(t.Context(), objects.Write{Actor: actor(), Bucket: bucket(), Body: body})
	if compute.CodeOf(err) != compute.CodeTimeout {
		t.Errorf("with a slow tail it ends with %v", err)
	}
	if _, err := b.Write(t.Context(), objects.Write{Actor: actor(), Bucket: bucket(), Body: io.MultiReader(trickle()...)}); err != nil {
		t.Errorf("a slow small file: %v", err)
	}
}

// TestLongUploadsKeepWhatTheyHave holds that an upload which lasts records its chunks
// before they could be collected, and removes the record when it fails.
func TestLongUploadsKeepWhatTheyHave(t *testing.T) {
	b := newBench(t)
	slow := func(err error) io.Reader {
		piece := func() io.Reader {
			return io.MultiReader(bytes.NewReader(content(compute.MaxChunk)), passing{b, 2 * time.Minute})
		}
		return io.MultiReader(piece(), piece(), piece(), iotest.ErrReader(err))
	}
	w := objects.Write{Actor: actor(), Bucket: bucket(), Body: slow(io.EOF)}
	c, err := b.Write(t.Context(), w)
	if err != nil || c.Upload.IsZero() || c.Parts == 0 || c.Size != 3*compute.MaxChunk {
		t.Fatalf("it is %+v, %v", c, err)
	}
	var size int64
	for _, cmd := range b.proposed {
		if p, ok := cmd.(command.PutObjectPart); ok {
			size += p.Part.Size
			if p.Part.Upload != c.Upload {
				t.Errorf("a part of %s", p.Part.Upload)
			}
		}
	}
	if size < 2*compute.MaxChunk {
		t.Errorf("%d bytes were kept", size)
	}
	b.proposed = nil
	w.Body = slow(errors.New("gone"))
	if _, err := b.Write(t.Context(), w); err == nil {
		t.Fatal("it worked")
	}
	if _, ok := b.proposed[len(b.proposed)-1].(command.AbortObjectUpload); !ok {
		t.Errorf("the last command is %T", b.proposed[len(b.proposed)-1])
	}
}

// TestCheckpointsCanBeRepeated holds that each command of a checkpoint has an op of its own:
// it is proposed again when its outcome is not known, and the state refuses another upload
// with the same id.
func TestCheckpointsCanBeRepeated(t *testing.T) {
	b := newBench(t)
	var pieces []io.Reader
	for range 3 {
		pieces = append(pieces, bytes.NewReader(content(compute.MaxChunk)), passing{b, 2 * time.Minute})
	}
	w := objects.Write{Actor: actor(), Bucket: bucket(), Body: io.MultiReader(pieces...)}
	if _, err := b.Write(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	known := make(map[compute.OpID]bool)
	for _, cmd := range b.proposed {
		var op command.Op
		switch c := cmd.(type) {
		case command.StartObjectUpload:
			op = c.Op
		case command.PutObjectPart:
			op = c.Op
		}
		if op.ID.IsZero() || op.Org != actor().Org || known[op.ID] {
			t.Errorf("%T has the op %+v", cmd, op)
		}
		known[op.ID] = true
	}
	if len(known) < 3 {
		t.Errorf("%d commands were proposed", len(b.proposed))
	}
}

// passing is a reader of nothing, before whose end time passes.
type passing struct {
	b *bench
	d time.Duration
}

func (p passing) Read([]byte) (int, error) {
	p.b.pass(p.d)
	return 0, io.EOF
}

// TestJoin makes one object of parts.
func TestJoin(t *testing.T) {
	b := newBench(t)
	data := content(compute.MaxChunk*2 + 100)
	var parts []*compute.ObjectPart
	for i, cut := range [][2]int{{0, 5 << 20}, {5 << 20, 5<<20 + 10}, {5<<20 + 10, len(data)}} {
		_, c := b.write(data[cut[0]:cut[1]], nil)
		parts = append(parts, &compute.ObjectPart{Number: i + 1, Size: c.Size, ETag: c.ETag, Blob: c.Blob, Whole: c.Whole})
	}
	c, err := b.Join(t.Context(), bucket(), parts, nil)
	if err != nil || c.Size != int64(len(data)) {
		t.Fatalf("joined: %+v, %v", c, err)
	}
	var out bytes.Buffer
	o := &compute.Object{Size: c.Size, Blob: c.Blob, Whole: c.Whole}
	if err := b.Copy(t.Context(), bucket(), o, &out, 0, o.Size); err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%d bytes came, %v", out.Len(), err)
	}
}

// TestDamagedContent holds that nothing but the bytes that were written is read.
func TestDamagedContent(t *testing.T) {
	b := newBench(t)
	o, _ := b.write(content(compute.MaxChunk+1), nil)
	for hash, data := range b.blobs {
		b.blobs[hash] = append(data, 0)
	}
	if err := b.Copy(t.Context(), bucket(), o, io.Discard, 0, o.Size); err == nil {
		t.Error("damaged content was read")
	}
	delete(b.blobs, o.Blob)
	again := newBench(t)
	if err := again.Copy(t.Context(), bucket(), o, io.Discard, 0, o.Size); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("without its manifest: %v", err)
	}
}
