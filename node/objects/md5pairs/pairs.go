package md5pairs

import (
	"crypto/md5" //nolint:gosec // S3 clients expect MD5s as ETags; nothing is trusted for them.
	"encoding"
	"encoding/binary"
	"hash"
	"math"
	"slices"
	"sync"
)

const (
	two   = 2        // Streams that a goroutine hashes by turns.
	piece = 64 << 10 // Bytes of each stream after which another may join.
)

// Hasher adds data to MD5s, that of several streams at once. Its methods are safe for
// concurrent use. The zero value is ready.
type Hasher struct {
	mu      sync.Mutex
	streams int    // Between Enter and Leave.
	waiting []*job // No group has them yet.
	taken   int    // Jobs that groups have.
	groups  int    // Goroutines that hash.
}

// job is data of one stream.
type job struct {
	to   hash.Hash
	data []byte // The rest of it.
	done chan struct{}
}

// Enter announces a stream that has data to add, or soon will, until Leave.
func (h *Hasher) Enter() { h.count(1) }

// Leave ends what Enter began.
func (h *Hasher) Leave() { h.count(-1) }

func (h *Hasher) count(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams += n
}

// Write adds data to an MD5 that crypto/md5 returned, and that nobody else uses meanwhile.
// Where there are several streams it may wait for their data until needed is closed.
func (h *Hasher) Write(to hash.Hash, data []byte, needed <-chan struct{}) {
	j := &job{to: to, data: data, done: make(chan struct{})}
	if !h.queue(j) {
		to.Write(data)
		return
	}
	select {
	case <-j.done:
		return
	case <-needed:
	}
	h.start()
	<-j.done
}

// queue has a job done together with others if there are enough streams for that.
func (h *Hasher) queue(j *job) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !paired || h.streams < two || len(j.data) < piece {
		return false
	}
	if h.waiting = append(h.waiting, j); len(h.waiting) >= two {
		h.begin()
	}
	return true
}

// start has all jobs that wait done.
func (h *Hasher) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begin()
}

// begin is start with mu held.
func (h *Hasher) begin() {
	if h.taken+len(h.waiting) > two*h.groups {
		h.groups++
		go new(group).run(h)
	}
}

// join returns the jobs of a group with those that waited, two at most, without those that
// are done. A group that has none ends.
func (h *Hasher) join(jobs []*job) []*job {
	h.mu.Lock()
	defer h.mu.Unlock()
	going := jobs[:0]
	for _, j := range jobs {
		if len(j.data) > 0 {
			going = append(going, j)
			continue
		}
		close(j.done)
		h.taken--
	}
	n := min(two-len(going), len(h.waiting))
	h.taken += n
	going = append(going, h.waiting[:n]...)
	h.waiting = slices.Delete(h.waiting, 0, n)
	if len(going) == 0 {
		h.groups--
	}
	return going
}

// group is what one goroutine hashes.
type group struct {
	state  [two][4]uint32
	data   [two]*byte
	length [two]uint64
	buf    []byte // The exported state of one MD5.
}

// run hashes until no job waits.
func (g *group) run(h *Hasher) {
	var jobs []*job
	for {
		if jobs = h.join(jobs); len(jobs) == 0 {
			return
		}
		n := piece
		for _, j := range jobs {
			n = min(n, len(j.data)/md5.BlockSize*md5.BlockSize)
		}
		if len(jobs) == 1 || n == 0 || !g.together(jobs, n) {
			for _, j := range jobs {
				part := j.data[:min(piece, len(j.data))]
				j.to.Write(part)
				j.data = j.data[len(part):]
			}
		}
	}
}

// together adds n bytes, whole blocks, to all MD5s. It reports false, and adds nothing,
// where it does not know the state of one, or that is within a block.
func (g *group) together(jobs []*job, n int) bool {
	for i, j := range jobs {
		g.data[i] = &j.data[0]
		if !g.export(i, j.to) {
			return false
		}
	}
	blocks(&g.state, &g.data, &sines, n/md5.BlockSize)
	for i, j := range jobs {
		g.restore(i, j.to, n)
		j.data = j.data[n:]
	}
	return true
}

// The state of an MD5 as crypto/md5 exports it: a magic, four words, a block that is not
// complete, and how many bytes were added.
const (
	magic    = "md5\x01"
	atBlock  = len(magic) + 4*4
	atLength = atBlock + md5.BlockSize
	exported = atLength + 8
)

// exporter is an MD5 of crypto/md5.
type exporter interface {
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}

// export copies the state of an MD5 into the group.
func (g *group) export(i int, from hash.Hash) bool {
	state, ok := from.(exporter)
	if !ok {
		return false
	}
	var err error
	g.buf, err = state.AppendBinary(g.buf[:0])
	if err != nil || len(g.buf) != exported || string(g.buf[:len(magic)]) != magic {
		return false
	}
	if g.length[i] = binary.BigEndian.Uint64(g.buf[atLength:]); g.length[i]%md5.BlockSize != 0 {
		return false
	}
	for word := range g.state[i] {
		g.state[i][word] = binary.BigEndian.Uint32(g.buf[len(magic)+4*word:])
	}
	return true
}

// restore copies a state to the MD5 that had it n bytes ago.
func (g *group) restore(i int, to hash.Hash, n int) {
	g.buf = append(g.buf[:0], magic...)
	for _, word := range g.state[i] {
		g.buf = binary.BigEndian.AppendUint32(g.buf, word)
	}
	g.buf = append(g.buf, make([]byte, md5.BlockSize)...)
	g.buf = binary.BigEndian.AppendUint64(g.buf, g.length[i]+uint64(n))
	if err := to.(exporter).UnmarshalBinary(g.buf); err != nil {
		panic(err) // It has exported the same.
	}
}

// sines has the constant of each step.
var sines = func() (out [64]uint32) { //nolint:gochecknoglobals // A table.
	for i := range out {
		out[i] = uint32(math.Abs(math.Sin(float64(i+1))) * (1 << 32))
	}
	return out
}()
