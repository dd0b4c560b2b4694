package copies

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/loop"
	"berth/node/logs"
)

const (
	pushEvery   = 500 * time.Millisecond
	pushTime    = 5 * time.Second // For one request.
	pushesBound = 8               // Nodes that output is pushed to at a time.
	pushLimit   = 2 * time.Second // For all requests in a row: then others have their turn.
	avoidFor    = 5 * time.Second

	copiedName = logs.SegmentName + ".copied" // Beside output that has its whole copy. It goes with the output.
)

// Config holds the settings and dependencies of a Sender.
type Config struct {
	DataDir string
	// Open has a node's Store serve the stream that it returns.
	Open func(ctx context.Context, node compute.NodeID) (io.ReadWriteCloser, error)
	// Nodes returns the nodes that are up and may have copies, in any order, without
	// this one.
	Nodes func() []compute.NodeID
	// Live reports whether an attempt of this node may print more.
	Live   func(compute.ExecutionID, uint64) bool
	Now    func() time.Time
	Logger *slog.Logger
}

// Sender pushes the output of this node's attempts to other nodes. Its methods are safe
// for concurrent use.
type Sender struct {
	cfg    Config
	logger *slog.Logger
	wake   chan struct{}
	places chan struct{} // Holds a token per node that is pushed to.

	mu sync.Mutex

	outputs map[attempt]*output // Those without a whole copy.
	pushing map[compute.NodeID]bool
}

// output is one attempt's output. While it is busy only the goroutine that pushes it uses
// the other fields, else only the one that plans.
type output struct {
	of    attempt
	path  string
	busy  bool // Guarded by Sender.mu.
	peer  compute.NodeID
	at    position // How far the copy goes.
	known bool     // The peer said so.
	end   bool     // All up to the end of the output was sent.
	done  bool     // The peer has marked the copy as complete.
	bad   compute.NodeID
	until time.Time // Until when bad is avoided.
}

// NewSender returns a Sender.
func NewSender(cfg Config) *Sender {
	return &Sender{
		cfg: cfg, logger: cfg.Logger.With("part", "copies"), wake: make(chan struct{}, 1),
		places: make(chan struct{}, pushesBound), outputs: make(map[attempt]*output), pushing: make(map[compute.NodeID]bool),
	}
}

// Track has the output of an attempt copied from now on until its copy is complete.
func (s *Sender) Track(execution compute.ExecutionID, epoch uint64) {
	of := attempt{execution, epoch}
	s.mu.Lock()
	if s.outputs[of] == nil {
		s.outputs[of] = &output{of: of, path: logs.Path(s.cfg.DataDir, execution, epoch), at: nowhere()}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run pushes output until ctx ends. It begins with what an earlier process has not pushed.
func (s *Sender) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	if err := s.resume(); err != nil {
		s.logger.Warn("earlier output is not copied", "err", err)
	}
	for ctx.Err() == nil {
		if s.idle() {
			select {
			case <-ctx.Done():
				return nil
			case <-s.wake:
			}
		}
		loop.Sleep(ctx, pushEvery)
		for peer, outputs := range s.plan() {
			group.Go(func() {
				s.places <- struct{}{}
				defer func() { <-s.places }()
				err := s.push(ctx, peer, outputs)
				s.pushed(ctx, peer, outputs, err)
			})
		}
	}
	return nil
}

func (s *Sender) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.outputs) == 0
}

// resume tracks the output on this disk that has no whole copy.
func (s *Sender) resume() error {
	paths, err := filepath.Glob(filepath.Join(logs.Dir(s.cfg.DataDir), "*", "*", logs.SegmentName))
	for _, path := range paths {
		dir := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(dir, copiedName)); err == nil {
			continue
		}
		id, errID := compute.ParseExecutionID(filepath.Base(filepath.Dir(dir)))
		epoch, errEpoch := strconv.ParseUint(filepath.Base(dir), 10, 64)
		if errID == nil && errEpoch == nil {
			s.Track(id, epoch)
		}
	}
	if err != nil {
		return fmt.Errorf("list output: %w", err)
	}
	return nil
}

// plan returns the outputs to push now, by the node to push them to, and marks them as
// busy. It forgets those that are complete or gone.
func (s *Sender) plan() map[compute.NodeID][]*output {
	nodes := s.cfg.Nodes()
	plan := make(map[compute.NodeID][]*output)
	var rest, over []*output
	for _, o := range s.waiting() {
		live := s.cfg.Live(o.of.execution, o.of.epoch) // Read before the disk is checked.
		switch {
		case o.done, !live && !exists(o.path):
			over = append(over, o)
		case s.choose(o, nodes) && (!live || o.news()):
			o.end = !live
			plan[o.peer] = append(plan[o.peer], o)
		default:
			rest = append(rest, o)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for peer, outputs := range plan {
		if s.pushing[peer] {
			rest = append(rest, outputs...)
			delete(plan, peer)
			continue
		}
		s.pushing[peer] = true
	}
	for _, o := range rest {
		o.busy = false
	}
	for _, o := range over {
		delete(s.outputs, o.of)
	}
	return plan
}

// waiting returns the outputs that are not busy, and marks them as busy.
func (s *Sender) waiting() []*output {
	s.mu.Lock()
	defer s.mu.Unlock()
	var outputs []*output
	for _, o := range s.outputs {
		if !o.busy {
			o.busy = true
			outputs = append(outputs, o)
		}
	}
	return outputs
}

// choose keeps the output's peer while that is up, else chooses another. It reports false
// when there is none.
func (s *Sender) choose(o *output, nodes []compute.NodeID) bool {
	avoid := s.cfg.Now().Before(o.until)
	if !o.peer.IsZero() && slices.Contains(nodes, o.peer) && (!avoid || o.peer != o.bad) {
		return true
	}
	for _, n := range Order(o.of.execution, nodes) {
		if avoid && n == o.bad && len(nodes) > 1 {
			continue
		}
		o.peer, o.at, o.known = n, nowhere(), false
		return !avoid || n != o.bad
	}
	return false
}

// Order returns nodes in the order in which they are chosen for copies of an execution's
// output, by rendezvous hashing: readers search for copies in the same order.
func Order(execution compute.ExecutionID, nodes []compute.NodeID) []compute.NodeID {
	weight := func(n compute.NodeID) []byte {
		sum := sha256.Sum256(append(bytes.Clone(n.UUID[:]), execution.UUID[:]...))
		return sum[:]
	}
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b compute.NodeID) int { return bytes.Compare(weight(b), weight(a)) })
	return sorted
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// news reports whether there may be more than the copy has.
func (o *output) news() bool {
	if !o.known {
		return exists(o.path)
	}
	info, err := os.Stat(logs.ChunkPath(o.path, max(o.at.chunk, 0)))
	return err != nil || info.Size() > o.at.size || exists(logs.ChunkPath(o.path, o.at.chunk+1))
}

// pushed notes the result of a push.
func (s *Sender) pushed(ctx context.Context, peer compute.NodeID, outputs []*output, err error) {
	if err != nil && ctx.Err() == nil {
		s.logger.Debug("output not copied", "node", peer, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pushing, peer)
	for _, o := range outputs {
		o.busy = false
		if err != nil {
			o.known, o.bad, o.until = false, peer, s.cfg.Now().Add(avoidFor)
		}
	}
}

// push pushes what outputs have to one node, in turn, until they have no more.
func (s *Sender) push(ctx context.Context, peer compute.NodeID, outputs []*output) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	overdue := time.AfterFunc(pushTime, cancel)
	defer overdue.Stop()
	stream, err := s.cfg.Open(ctx, peer)
	if err != nil {
		return err
	}
	defer stream.Close()
	var frame, answer []byte
	began := time.Now() //nolint:forbidigo // Only how long it takes.
	for rest := slices.Clone(outputs); len(rest) > 0 && time.Since(began) < pushLimit; {
		var pieces []piece
		var sent []*output
		frame, pieces, sent, rest = s.gather(frame[:0], rest)
		if len(sent) == 0 {
			return nil
		}
		if err := writeFrame(stream, frame); err != nil {
			return err
		}
		if answer, err = readFrame(stream, answer); err != nil {
			return fmt.Errorf("copy output: %w", err)
		}
		overdue.Reset(pushTime)
		at, err := decodePositions(answer, len(sent))
		if err != nil {
			return err
		}
		fault.Point("copies.acknowledged")
		for i, o := range sent {
			more, err := o.advance(at[i], pieces[i])
			if err != nil {
				return err
			}
			if more {
				rest = append(rest, o)
			}
		}
	}
	return nil
}

// gather appends to frame what the first of rest have, as much as one frame takes. It
// returns the pieces without their bytes, the outputs that they are of, and the others.
func (s *Sender) gather(frame []byte, rest []*output) ([]byte, []piece, []*output, []*output) {
	var pieces []piece
	var sent []*output
	frame = append(frame, make([]byte, frameHeader)...)
	for len(rest) > 0 && len(sent) < maxPieces && len(frame) < frameBytes {
		o := rest[0]
		rest = rest[1:]
		p, err := o.next()
		if err != nil {
			s.logger.Debug("output not read", "execution", o.of.execution, "err", err) // It may be deleted meanwhile.
			continue
		}
		if o.known && len(p.data) == 0 && !p.complete {
			continue // The copy has all there is.
		}
		frame, p.data = appendPiece(frame, p), nil
		pieces, sent = append(pieces, p), append(sent, o)
	}
	return frame, pieces, sent, rest
}

// next returns what to push next: bytes behind the copy's position, or a piece without
// bytes that asks for that, or that says that the copy is complete.
func (o *output) next() (piece, error) {
	p := piece{of: o.of, at: o.at}
	if !o.known {
		p.at = position{}
		return p, nil
	}
	for {
		data, last, err := o.read()
		if err != nil {
			return p, err
		}
		if p.at, p.data = o.at, data; len(data) > 0 {
			return p, nil
		}
		if last {
			p.complete = o.end
			return p, nil
		}
	}
}

// read returns what is behind the copy's position. Without more in a chunk it moves to
// the next; last reports that there is none.
func (o *output) read() (data []byte, last bool, err error) {
	numbers, err := logs.Chunks(o.path)
	if err != nil {
		return nil, false, err
	}
	i, found := slices.BinarySearch(numbers, o.at.chunk)
	if !found {
		if i == len(numbers) {
			return nil, true, nil // The copy has more than this disk, or there is nothing yet.
		}
		o.at = position{numbers[i], 0}
	}
	file, err := os.Open(logs.ChunkPath(o.path, o.at.chunk))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil // The ring dropped it meanwhile.
	}
	if err != nil {
		return nil, false, err
	}
	data, _, err = logs.ReadWhole(file, o.at.size, nil, pieceBytes)
	if err = errors.Join(err, file.Close()); err != nil || len(data) > 0 {
		return data, false, err
	}
	if i+1 >= len(numbers) {
		return nil, true, nil
	}
	o.at = position{numbers[i+1], 0}
	return nil, false, nil
}

// advance notes that the copy goes to at, as the answer to p says. It reports whether
// there may be more to push.
func (o *output) advance(at position, p piece) (more bool, err error) {
	if p.complete && (at == p.at || at == nowhere() && p.at.size == 0) {
		fault.Point("copies.complete")
		if err := mark(filepath.Join(filepath.Dir(o.path), copiedName)); err != nil {
			return false, err
		}
		o.done = true
		return false, nil
	}
	o.at, o.known = at, true
	return true, nil
}

// mark creates an empty file, unless its directory is gone.
func mark(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark output as copied: %w", err)
	}
	return f.Close()
}
