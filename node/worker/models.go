package worker

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
)

// Limits of the models that servers send to workers.
const (
	maxModelFiles = 2000 // Files of one model.
	maxModelReads = 16   // Files that one worker reads from one server at a time.
)

// StoredModel lists the files of a model that an organization stores, as it travels.
type StoredModel struct {
	Version string       `cbor:"1,keyasint"` // Version of all files together.
	Files   []StoredFile `cbor:"2,keyasint,omitempty"`
}

// StoredFile is one file of a stored model.
type StoredFile struct {
	Name    string `cbor:"1,keyasint"`
	Size    int64  `cbor:"2,keyasint,omitempty"`
	Version string `cbor:"3,keyasint"` // Changes with the content.
}

// fileRequest asks for the content of a file of a model.
type fileRequest struct {
	Execution compute.ExecutionID `cbor:"1,keyasint"`
	File      StoredFile          `cbor:"2,keyasint"` // As it was listed.
	Offset    int64               `cbor:"3,keyasint,omitempty"`
}

// serveModel gives a worker the listing of the model of one of its live attempts,
// which is empty if the organization stores no such model.
func (s *Server) serveModel(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	view, e, err := s.assigned(ctx, peer, data)
	if err != nil {
		return nil, err
	}
	if e.Inference == nil {
		return nil, errNoModel()
	}
	m := s.Model(view, e)
	if len(m.Files) > maxModelFiles {
		return nil, compute.Errorf(compute.CodeInvalid,
			"The organization stores more than %d files of %s.", maxModelFiles, e.Inference.Model)
	}
	return rpc.NewCodec().Marshal(m), nil
}

// serveModelFile sends a worker the rest of a file that serveModel has listed. Its
// answer comes with the first bytes, so that another server is asked if there are none.
func (s *Server) serveModelFile(ctx context.Context, peer rpc.Peer, data []byte, stream *rpc.Stream) error {
	var req fileRequest
	if err := rpc.NewCodec().Unmarshal(data, &req); err != nil {
		return compute.Errorf(compute.CodeInvalid, "The request cannot be read: %w", err)
	}
	view, e, err := s.modelFile(ctx, peer, &req)
	if err != nil {
		return err
	}
	if !s.reads.begin(peer.ID) {
		return compute.Errorf(compute.CodeUnavailable, "This node reads too many files of models.").Retry(time.Second)
	}
	defer s.reads.end(peer.ID)
	to := &lateAnswer{stream: stream}
	if err := s.CopyModel(stream.UntilClosed(ctx, nil), view, e, req.File.Name, req.Offset, to); err != nil {
		return err
	}
	return to.accept()
}

// modelFile returns a view in which a worker may read a file, and the attempt's
// execution.
func (s *Server) modelFile(
	ctx context.Context, peer rpc.Peer, req *fileRequest,
) (*fsm.View, *compute.Execution, error) {
	view, e, err := s.assigned(ctx, peer, req.Execution.UUID[:])
	if err == nil {
		err = s.checkFile(view, e, req)
	}
	if compute.CodeOf(err) != compute.CodeConflict {
		return view, e, err
	}
	// The replica may be behind that of the server that has listed the file.
	if view, err = s.Read(ctx); err != nil {
		return nil, nil, err
	}
	if e = assigned(view, peer.ID, req.Execution); e == nil {
		return nil, nil, errNoAttempt()
	}
	return view, e, s.checkFile(view, e, req)
}

// checkFile refuses to read what is no file of an execution's model, or is no longer as
// it was listed.
func (s *Server) checkFile(view *fsm.View, e *compute.Execution, req *fileRequest) error {
	if e.Inference == nil {
		return errNoModel()
	}
	if !slices.Contains(s.Model(view, e).Files, req.File) {
		return compute.Errorf(compute.CodeConflict, "The organization has changed its model.")
	}
	if req.Offset < 0 || req.Offset > req.File.Size {
		return compute.Errorf(compute.CodeInvalid, "The file has %d bytes.", req.File.Size)
	}
	return nil
}

func errNoModel() error {
	return compute.Errorf(compute.CodeNotFound, "That execution serves no model.")
}

// lateAnswer accepts a call before the first bytes are sent.
type lateAnswer struct {
	stream   *rpc.Stream
	accepted bool
}

func (a *lateAnswer) accept() error {
	if a.accepted {
		return nil
	}
	a.accepted = true
	return a.stream.Accept(nil)
}

func (a *lateAnswer) Write(p []byte) (int, error) {
	if err := a.accept(); err != nil {
		return 0, err
	}
	return a.stream.Write(p)
}

// readCount counts the files of models that each worker reads.
type readCount struct {
	mu sync.Mutex
	of map[compute.NodeID]int
}

// begin counts one more, unless it would be one too many.
func (c *readCount) begin(worker compute.NodeID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[worker] >= maxModelReads {
		return false
	}
	if c.of == nil {
		c.of = make(map[compute.NodeID]int)
	}
	c.of[worker]++
	return true
}

// end counts one less.
func (c *readCount) end(worker compute.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[worker]--; c.of[worker] <= 0 {
		delete(c.of, worker)
	}
}

// ModelUpstream has the calls to servers that models need.
type ModelUpstream interface {
	Upstream
	OpenSome(
		ctx context.Context, method string, request []byte, take func(io.Reader) error,
	) (io.ReadWriteCloser, error)
}

// Models reads the models that organizations store, for a worker's attempts.
type Models struct {
	Up  ModelUpstream
	Own *Assignments
}

// List returns the files of a model that an organization stores. The error has
// compute.CodeUnavailable if no server answers or no live attempt serves the model.
func (m Models) List(ctx context.Context, org compute.OrgID, model string) (out StoredModel, err error) {
	err = m.forAttempt(org, model, func(id compute.ExecutionID) error {
		answer, err := ask(ctx, m.Up, askEach, methodModel, id.UUID[:])
		if err != nil {
			return err
		}
		if err := rpc.NewCodec().Unmarshal(answer, &out); err != nil {
			return compute.Errorf(compute.CodeInternal, "The listing of a model cannot be read: %w", err)
		}
		return nil
	})
	return out, err
}

// Open reads a file of a listing from an offset. The error has compute.CodeConflict if
// the file is no longer as it was listed. A body that ends early is to be opened again.
func (m Models) Open(
	ctx context.Context, org compute.OrgID, model string, file StoredFile, offset int64,
) (body io.ReadCloser, err error) {
	err = m.forAttempt(org, model, func(id compute.ExecutionID) error {
		req := rpc.NewCodec().Marshal(fileRequest{Execution: id, File: file, Offset: offset})
		body, err = m.Up.OpenSome(ctx, methodModelFile, req, func(io.Reader) error { return nil })
		return unlessOlder(err)
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// forAttempt calls do with one live attempt of a model after another, until a server
// knows of it. Several share one download, and some of them may have ended.
func (m Models) forAttempt(org compute.OrgID, model string, do func(id compute.ExecutionID) error) error {
	work, _ := m.Own.Current()
	for _, w := range work {
		e := w.Execution
		if e.Org != org || e.Inference == nil || e.Inference.Model != model {
			continue
		}
		if err := do(e.ID); compute.CodeOf(err) != compute.CodeNotFound {
			return err
		}
	}
	return compute.Errorf(compute.CodeUnavailable, "No live attempt of this node serves %s.", model)
}
