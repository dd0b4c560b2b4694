package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/fsm/command"
	"berth/loop"
	"berth/node/objects"
)

// Limits of an archive.
const (
	keptAtOnce = 4               // Outputs that a node archives at a time.
	keepTime   = 5 * time.Minute // For one output.
	readAtOnce = 24              // Outputs that are read at a time; each takes up to 12 MiB.
	settleTime = 5 * time.Second // Until all servers know of archived output that one knows of.
	maxRaw     = 1 << 30         // Bytes of an output, uncompressed: more than a node keeps of one.
	window     = 1 << 20         // Bytes that the compression looks back; a reader needs as much memory.
)

// Objects stores the content of objects, as package objects does.
type Objects interface {
	Bucket(ctx context.Context, view **fsm.View, actor command.Actor) (*compute.Bucket, error)
	Write(ctx context.Context, w objects.Write) (compute.Content, error)
	Copy(ctx context.Context, b *compute.Bucket, o *compute.Object, w io.Writer, from, length int64) error
}

// Config holds the settings and dependencies of an Archive.
type Config struct {
	View    func() *fsm.View
	Read    func(ctx context.Context) (*fsm.View, error) // Everything acknowledged before the call.
	Objects Objects
	// Export writes the output of an ended attempt, as package logs does.
	Export  func(ctx context.Context, a compute.Attempt, w io.Writer) (lines int, whole bool, err error)
	Propose func(ctx context.Context, cmd command.Command) (command.Result, uint64, error)
	// MaxBytes bounds what all organizations have archived; 0 drops nothing.
	MaxBytes   int64
	Now        func() time.Time // The cluster's time.
	Registerer prometheus.Registerer
}

// Archive keeps the output of ended attempts. Its methods are safe for concurrent use.
type Archive struct {
	cfg     Config
	writers *loop.FairLimiter[compute.OrgID]
	readers *loop.FairLimiter[compute.OrgID]
	outputs *prometheus.CounterVec
}

// New returns an Archive.
func New(cfg Config) *Archive {
	a := &Archive{
		cfg: cfg, writers: loop.NewFairLimiter[compute.OrgID](keptAtOnce),
		readers: loop.NewFairLimiter[compute.OrgID](readAtOnce),
	}
	a.outputs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berth_output_archived_total", Help: "Outputs of ended attempts that were to be archived, by result.",
	}, []string{"result"})
	for _, result := range []string{"kept", "partial", "failed"} {
		a.outputs.WithLabelValues(result)
	}
	cfg.Registerer.MustRegister(a.outputs)
	return a
}

// Keep archives the output of an attempt of a node, unless that is done. It reports true
// once the node may remove the output: it is archived whole, nothing was printed, or the
// execution is no longer in the state. After it was archived Keep reports false for a while,
// so that all servers know where it is. The code is not_found for an attempt of another node.
func (s *Archive) Keep(
	ctx context.Context, owner compute.NodeID, execution compute.ExecutionID, epoch uint64,
) (done bool, err error) {
	view, e, attempt, err := s.find(ctx, execution, epoch)
	if e == nil || err != nil {
		return err == nil, err
	}
	if attempt.Node != owner {
		return false, compute.Errorf(compute.CodeNotFound, "The node had no such attempt.")
	}
	known, ok := view.ArchivedOutput(execution, epoch)
	if ok && !known.Partial {
		return s.settled(known), nil
	}
	return s.keepInTurn(ctx, view, e, attempt)
}

// KeepCopy is Keep for output of another node of which the caller has a copy. A node that
// is up archives its own output, so that the copy waits for that. A part that is left of the
// output of a node that is down is archived once.
func (s *Archive) KeepCopy(ctx context.Context, execution compute.ExecutionID, epoch uint64) (done bool, err error) {
	view, e, attempt, err := s.find(ctx, execution, epoch)
	if e == nil || err != nil {
		return err == nil, err
	}
	owned := up(view, attempt.Node)
	known, ok := view.ArchivedOutput(execution, epoch)
	switch {
	case ok && (!known.Partial || !owned):
		return s.settled(known), nil
	case owned:
		return printedNothing(e, attempt), nil
	}
	return s.keepInTurn(ctx, view, e, attempt)
}

// printedNothing reports whether an attempt is known to have printed nothing. Its node
// archives no such output, so that no row would let its copy go.
func printedNothing(e *compute.Execution, a compute.Attempt) bool {
	return e.Status.Terminal() && a.Epoch == e.Epoch && e.Ran && e.Usage.OutputLines == 0
}

// settled reports whether output was archived so long ago that all servers know of it.
func (s *Archive) settled(o *compute.OutputArchive) bool {
	return s.cfg.Now().Sub(o.At.Time()) >= settleTime
}

// keepInTurn stores the output of an attempt while few others are stored.
func (s *Archive) keepInTurn(
	ctx context.Context, view *fsm.View, e *compute.Execution, a compute.Attempt,
) (done bool, err error) {
	if !a.Ended {
		return false, nil
	}
	actor, ok := memberOf(view, e)
	if !ok || view.AllowsOutput() != nil {
		return true, nil // Nobody can read it, or it cannot be archived yet.
	}
	end, err := s.writers.Take(ctx, e.Org)
	if err != nil {
		return false, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	done, err = s.keep(ctx, view, actor, e, a)
	if err != nil {
		s.outputs.WithLabelValues("failed").Inc()
		return false, fmt.Errorf("archive output: %w", err)
	}
	return done, nil
}

// find returns an execution and its attempt with an epoch, in a view that has both; nil if
// no server has them.
func (s *Archive) find(
	ctx context.Context, id compute.ExecutionID, epoch uint64,
) (*fsm.View, *compute.Execution, compute.Attempt, error) {
	view := s.cfg.View()
	e, a := attemptOf(view, id, epoch)
	if e != nil {
		return view, e, a, nil
	}
	view, err := s.cfg.Read(ctx) // This replica may lag.
	if err != nil {
		return nil, nil, a, err
	}
	e, a = attemptOf(view, id, epoch)
	return view, e, a, nil
}

// attemptOf returns an execution of a state and its attempt with an epoch; nil if the state
// does not have both.
func attemptOf(view *fsm.View, id compute.ExecutionID, epoch uint64) (*compute.Execution, compute.Attempt) {
	e, ok := view.AnyExecution(id)
	if !ok {
		return nil, compute.Attempt{}
	}
	for _, a := range view.Attempts(id) {
		if a.Epoch == epoch {
			return e, *a
		}
	}
	return nil, compute.Attempt{}
}

// up reports whether a node can be asked for the rest of an output.
func up(view *fsm.View, id compute.NodeID) bool {
	n, ok := view.Node(id)
	return ok && n.State == compute.NodeUp
}

// keep stores the output of an attempt and records where it is. It reports true if there
// is no output.
func (s *Archive) keep(
	ctx context.Context, view *fsm.View, actor command.Actor, e *compute.Execution, a compute.Attempt,
) (empty bool, err error) {
	bucket, err := s.cfg.Objects.Bucket(ctx, &view, actor)
	if err != nil {
		return false, err
	}
	in, out := io.Pipe()
	defer in.Close()
	var lines int
	var whole bool
	go func() {
		var err error
		lines, whole, err = s.export(ctx, a, out)
		_ = out.CloseWithError(err)
	}()
	// The reader sees the end after lines and whole were set.
	content, err := s.cfg.Objects.Write(ctx, objects.Write{
		Actor: command.Actor{Org: e.Org}, Bucket: bucket, Body: in, Max: compute.MaxOutputArchive,
	})
	if err != nil {
		return false, err
	}
	if lines == 0 {
		return true, nil
	}
	fault.Point("output.stored")
	recorded, _, err := s.cfg.Propose(ctx, command.ArchiveOutputs{Outputs: []compute.OutputArchive{{
		Execution: a.Execution, Epoch: a.Epoch, Blob: content.Blob, Whole: content.Whole, Size: content.Size, Partial: !whole,
	}}})
	if err != nil {
		return false, err
	}
	fault.Point("output.recorded")
	switch {
	case recorded.Count == 0: // The execution was deleted meanwhile, or another node was first.
	case whole:
		s.outputs.WithLabelValues("kept").Inc()
	default:
		s.outputs.WithLabelValues("partial").Inc()
	}
	return false, nil
}

// export writes the compressed output of an attempt.
func (s *Archive) export(ctx context.Context, a compute.Attempt, w io.Writer) (lines int, whole bool, err error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		return 0, false, err
	}
	lines, whole, err = s.cfg.Export(ctx, a, &limited{to: z, left: maxRaw})
	if closing := z.Close(); err == nil {
		err = closing
	}
	return lines, whole, err
}

// limited is a writer with a limit of bytes, for the output of a node that may be hostile.
type limited struct {
	to   io.Writer
	left int
}

// Write writes p, unless the limit is exceeded.
func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, compute.Errorf(compute.CodeTooLarge, "The output has more than %d bytes.", maxRaw)
	}
	return l.to.Write(p)
}

// memberOf returns somebody for whom the bucket of an execution's organization may be
// made: its user, or an owner if that one has left. It reports false for an organization
// that has ended, or has no such members.
func memberOf(view *fsm.View, e *compute.Execution) (actor command.Actor, ok bool) {
	actor.Org = e.Org
	for _, m := range view.Members(e.Org) {
		u, known := view.User(m.User)
		if !known || !u.Active || m.User != e.User && m.Role != compute.OrgOwner {
			continue
		}
		actor.User, actor.TokenVersion, ok = u.ID, u.TokenVersion, true
		if m.User == e.User {
			break
		}
	}
	org, known := view.Org(e.Org)
	return actor, ok && known && org.DeletedAt.IsZero()
}

// Open returns the archived output of an attempt for package logs; nil if it is not
// archived.
func (s *Archive) Open(
	ctx context.Context, execution compute.ExecutionID, epoch uint64,
) (output io.ReadCloser, whole bool, err error) {
	view := s.cfg.View()
	o, ok := view.ArchivedOutput(execution, epoch)
	if !ok {
		return nil, false, nil
	}
	bucket := view.Bucket(o.Org)
	if bucket == nil {
		return nil, false, compute.Errorf(compute.CodeNotFound,
			"The organization has ended, and its archived output with it.")
	}
	end, err := s.readers.Take(ctx, o.Org)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	in, out := io.Pipe()
	go func() {
		_ = out.CloseWithError(s.cfg.Objects.Copy(ctx, bucket, o.Object(), out, 0, o.Size))
	}()
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window))
	if err != nil {
		cancel()
		end()
		return nil, false, errors.Join(err, in.Close())
	}
	return &opened{plain: z, in: in, end: sync.OnceFunc(func() { cancel(); end() })}, !o.Partial, nil
}

// opened is archived output that is being read.
type opened struct {
	plain *zstd.Decoder
	in    *io.PipeReader
	end   func()
}

// Read reads what the attempt printed. Every error asks the client to try again.
func (o *opened) Read(p []byte) (int, error) {
	n, err := o.plain.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // As io.Reader has it.
		err = compute.Errorf(compute.CodeUnavailable, "The output is archived and cannot be read now: %w", err).
			Named("output_unreadable").Retry(2 * time.Second)
	}
	return n, err
}

// Close ends the read. It may be called while another goroutine reads.
func (o *opened) Close() error {
	o.end()
	return o.in.Close() // The decoder, which another goroutine may use now, has nothing to release.
}

// Trim drops the oldest archived output beyond the limit of bytes, as the leader of a term.
func (s *Archive) Trim(ctx context.Context, term uint64) error {
	for ctx.Err() == nil {
		_, bytes := s.cfg.View().ArchivedOutputs()
		if bytes <= s.cfg.MaxBytes || s.cfg.MaxBytes == 0 || s.cfg.View().AllowsOutput() != nil {
			return nil //nolint:nilerr // Not yet.
		}
		result, _, err := s.cfg.Propose(ctx, command.TrimOutputs{Term: term, Bytes: s.cfg.MaxBytes})
		if err != nil {
			return fmt.Errorf("trim archived output: %w", err)
		}
		if result.Count == 0 {
			return nil
		}
	}
	return ctx.Err()
}
