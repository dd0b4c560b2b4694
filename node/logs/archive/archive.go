package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/node/objects"
)

// Limits of an archive.
const (
	keptAtOnce = 4               // Outputs that a node archives at a time.
	keepTime   = 5 * time.Minute // For one output.
	window     = 1 << 20         // Bytes that the compression looks back; a reader needs as much memory.
)

// Objects stores the content of objects, as package objects does.
type Objects interface {
	Bucket(ctx context.Context, view **fsm.View, actor fsm.Actor) (*compute.Bucket, error)
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
	Propose func(ctx context.Context, cmd fsm.Command) (fsm.Result, uint64, error)
	// MaxBytes bounds what all organizations have archived; 0 drops nothing.
	MaxBytes   int64
	Registerer prometheus.Registerer
}

// Archive keeps the output of ended attempts. Its methods are safe for concurrent use.
type Archive struct {
	cfg     Config
	places  chan struct{} // Holds a token per output that is being archived.
	outputs *prometheus.CounterVec
}

// New returns an Archive.
func New(cfg Config) *Archive {
	a := &Archive{cfg: cfg, places: make(chan struct{}, keptAtOnce)}
	a.outputs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berth_output_archived_total", Help: "Outputs of ended attempts that were to be archived, by result.",
	}, []string{"result"})
	for _, result := range []string{"kept", "partial", "failed"} {
		a.outputs.WithLabelValues(result)
	}
	cfg.Registerer.MustRegister(a.outputs)
	return a
}

// Keep archives the output of an attempt, unless that is done. It reports true once the
// output may be removed: it is archived, nothing was printed, or the execution is no longer
// in the state. After it was archived Keep still reports false, so that the output stays
// until the next call, when all nodes know where it is.
func (s *Archive) Keep(ctx context.Context, execution compute.ExecutionID, epoch uint64) (done bool, err error) {
	view := s.cfg.View()
	e, attempt := find(view, execution, epoch)
	if e == nil { // Or this replica lags.
		if view, err = s.cfg.Read(ctx); err != nil {
			return false, err
		}
		e, attempt = find(view, execution, epoch)
	}
	switch known, ok := view.ArchivedOutput(execution, epoch); {
	case e == nil, ok && (!known.Partial || !up(view, attempt.Node)), view.AllowsOutput() != nil:
		return true, nil
	case !attempt.Ended:
		return false, nil
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	done, err = s.keep(ctx, view, e, attempt)
	if err != nil {
		s.outputs.WithLabelValues("failed").Inc()
		return false, fmt.Errorf("archive output: %w", err)
	}
	return done, nil
}

// find returns an execution of the state and its attempt with an epoch; nil if the state
// does not have both.
func find(view *fsm.View, id compute.ExecutionID, epoch uint64) (*compute.Execution, compute.Attempt) {
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
	ctx context.Context, view *fsm.View, e *compute.Execution, a compute.Attempt,
) (empty bool, err error) {
	bucket, err := s.cfg.Objects.Bucket(ctx, &view, memberOf(view, e))
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
	content, err := s.cfg.Objects.Write(ctx, objects.Write{Actor: fsm.Actor{Org: e.Org}, Bucket: bucket, Body: in})
	if err != nil {
		return false, err
	}
	if lines == 0 {
		return true, nil
	}
	fault.Point("output.stored")
	_, _, err = s.cfg.Propose(ctx, fsm.ArchiveOutputs{Outputs: []compute.OutputArchive{{
		Execution: a.Execution, Epoch: a.Epoch, Blob: content.Blob, Whole: content.Whole, Size: content.Size, Partial: !whole,
	}}})
	if err != nil {
		return false, err
	}
	fault.Point("output.recorded")
	result := "kept"
	if !whole {
		result = "partial"
	}
	s.outputs.WithLabelValues(result).Inc()
	return false, nil
}

// export writes the compressed output of an attempt.
func (s *Archive) export(ctx context.Context, a compute.Attempt, w io.Writer) (lines int, whole bool, err error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		return 0, false, err
	}
	lines, whole, err = s.cfg.Export(ctx, a, z)
	if closing := z.Close(); err == nil {
		err = closing
	}
	return lines, whole, err
}

// memberOf returns somebody for whom the bucket of an execution's organization may be
// made: its user, or an owner if that one has left.
func memberOf(view *fsm.View, e *compute.Execution) fsm.Actor {
	actor := fsm.Actor{Org: e.Org, User: e.User}
	for _, m := range view.Members(e.Org) {
		u, ok := view.User(m.User)
		if !ok || !u.Active {
			continue
		}
		if m.User == e.User || m.Role == compute.OrgOwner {
			actor.User, actor.TokenVersion = u.ID, u.TokenVersion
		}
		if m.User == e.User {
			break
		}
	}
	return actor
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
		return nil, false, compute.Errorf(compute.CodeNotFound, "The organization has ended, and its archived output with it.")
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
		return nil, false, errors.Join(err, in.Close())
	}
	return &opened{plain: z, in: in, cancel: cancel}, !o.Partial, nil
}

// opened is archived output that is being read.
type opened struct {
	plain  *zstd.Decoder
	in     *io.PipeReader
	cancel context.CancelFunc
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
	o.cancel()
	return o.in.Close() // The decoder, which another goroutine may use now, has nothing to release.
}

// Trim drops the oldest archived output beyond the limit of bytes, as the leader of a term.
func (s *Archive) Trim(ctx context.Context, term uint64) error {
	for ctx.Err() == nil {
		_, bytes := s.cfg.View().ArchivedOutputs()
		if bytes <= s.cfg.MaxBytes || s.cfg.MaxBytes == 0 || s.cfg.View().AllowsOutput() != nil {
			return nil
		}
		result, _, err := s.cfg.Propose(ctx, fsm.TrimOutputs{Term: term, Bytes: s.cfg.MaxBytes})
		if err != nil {
			return fmt.Errorf("trim archived output: %w", err)
		}
		if result.Count == 0 {
			return nil
		}
	}
	return ctx.Err()
}
