package node

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"berth/api/handler"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/node/logs"
	"berth/node/logs/notify"
	"berth/node/progress"
	"berth/node/series"
)

// methodLogs is the stream by which nodes read one another's output.
const methodLogs = "logs.follow"

// archiveWait bounds how long output waits for the archive that its execution
// is in.
const archiveWait = 5 * time.Second

// outputState tells the log followers what the state, and archives, know of
// attempts.
type outputState struct{ node *Node }

// Attempts returns the attempts of an execution, and how it ended once it did.
func (s outputState) Attempts(
	ctx context.Context, id compute.ExecutionID,
) ([]compute.Attempt, *logs.Final, error) {
	view := s.node.machine.View()
	if _, known := view.AnyExecution(id); !known {
		ctx, cancel := context.WithTimeout(ctx, archiveWait)
		defer cancel()
		var err error
		if view, err = s.node.archives.With(ctx, view, id); err != nil {
			return nil, nil, err
		}
	}
	e, ok := view.AnyExecution(id)
	if !ok || e.Deleted {
		return nil, nil, compute.Errorf(compute.CodeNotFound, "No such execution.")
	}
	var attempts []compute.Attempt
	for _, a := range view.Attempts(id) {
		attempts = append(attempts, *a)
	}
	if !e.Status.Terminal() {
		return attempts, nil, nil
	}
	return attempts, &logs.Final{ExitCode: e.ExitCode, Error: errorText(e), Status: e.Status.String()}, nil
}

// Changed tells of the next change of the state.
func (s outputState) Changed() <-chan struct{} {
	return s.node.machine.Changed(s.node.machine.View().Index())
}

// Up reports whether the state has a node as one that is heard.
func (s outputState) Up(id compute.NodeID) bool {
	n, ok := s.node.machine.View().Node(id)
	return ok && n.State == compute.NodeUp
}

// errorText returns why an execution did not complete, for people.
func errorText(e *compute.Execution) string {
	if e.Status == compute.StatusCompleted {
		return ""
	}
	if e.Detail != "" {
		return e.Detail
	}
	return e.Reason.String()
}

// outputPeers opens the output of other nodes.
type outputPeers struct {
	cluster *cluster.Cluster
	machine *fsm.FSM
}

// Stream has another node serve a request for output. A worker, which sees no
// more of the state than its own work, gets the state that the request comes
// from.
func (p outputPeers) Stream(ctx context.Context, node compute.NodeID, req []byte) (io.ReadCloser, error) {
	view := p.machine.View()
	if known, ok := view.Node(node); ok && known.Role == compute.RoleWorker {
		req = append(binary.BigEndian.AppendUint64(nil, view.Index()), req...)
	}
	_, stream, err := p.cluster.Open(ctx, node, methodLogs, req)
	return stream, err
}

// splitAsked returns the index and the request of what Stream sends a worker.
func splitAsked(req []byte) (index uint64, rest []byte, err error) {
	if len(req) < 8 {
		return 0, nil, compute.Errorf(compute.CodeInvalid, "Not a request for output.")
	}
	return binary.BigEndian.Uint64(req), req[8:], nil
}

// openOutput reads what executions print, here and on other nodes.
func (n *Node) openOutput(context.Context) error {
	n.openLogs()
	outputCopying{n}.open(cluster.Servers | cluster.Workers)
	outputArchive{n}.open()
	n.cluster.Handle(methodDeleteLogs, cluster.Servers, n.deleteOutput)
	n.output = logs.NewFollower(logs.FollowerConfig{
		Node: n.cluster.ID(), Store: n.logs,
		State: outputState{n}, Peers: outputPeers{n.cluster, n.machine},
		Copies: n.outputCopies, Holders: outputCopying{n}.holders, Archives: n.outputArchive,
	})
	n.progress = &progress.Service{
		Cluster: n.cluster, Reader: progress.NewReader(n.output.Read, n.opts.Now), State: n.machine.View,
	}
	n.progress.Handle()
	n.cluster.HandleStream(methodLogs, cluster.Servers, func(
		ctx context.Context, _ rpc.Peer, req []byte, stream *rpc.Stream,
	) error {
		if err := stream.Accept(nil); err != nil {
			return err
		}
		window := logs.NewWindow()
		return n.output.Serve(stream.UntilClosed(ctx, window.Received), req, stream, window)
	})
	return nil
}

// openLogs opens the output on this node's disk. Without watches of the kernel, what is
// printed is seen up to 25 ms later.
func (n *Node) openLogs() {
	n.series = series.Open(n.cfg.DataDir) // Deleted with the output.
	notifier, err := notify.Open()
	if err != nil {
		n.logger.Warn("output is polled", "hint", "raise fs.inotify.max_user_instances", "err", err)
		n.logs = logs.Open(n.cfg.DataDir, nil)
		return
	}
	n.onClose(notifier.Close)
	n.logs = logs.Open(n.cfg.DataDir, notifier)
}

// outputs gives the API the output of executions, wherever it is.
type outputs struct {
	follower *logs.Follower
	node     *Node
	lines    *sync.Pool // Holds *[]handler.Line values with more than fewLines.
}

// fewLines bounds batches whose memory is not used again: most followers get no larger ones.
const fewLines = 32

// Follow hands on the lines behind number after until the execution ended.
func (o outputs) Follow(
	ctx context.Context, id compute.ExecutionID, after uint64, fn func([]handler.Line) error,
) error {
	_, err := o.follower.Follow(ctx, id, after, func(lines []logs.Line) error {
		if len(lines) <= fewLines {
			return fn(appendAPILines(nil, lines))
		}
		buf, ok := o.lines.Get().(*[]handler.Line)
		if !ok {
			buf = new([]handler.Line)
		}
		defer o.lines.Put(buf)
		*buf = appendAPILines((*buf)[:0], lines)
		return fn(*buf)
	})
	return err
}

// appendAPILines appends lines as the API has them.
func appendAPILines(out []handler.Line, lines []logs.Line) []handler.Line {
	out = slices.Grow(out, len(lines))
	for _, l := range lines {
		out = append(out, handler.Line{Seq: l.Seq, At: l.At, Stream: l.Stream.String(), Text: l.Text, Partial: l.Partial})
	}
	return out
}

// Here reports whether the newest attempt of an execution is on this node.
func (o outputs) Here(id compute.ExecutionID) bool {
	attempts := o.node.machine.View().Attempts(id)
	return len(attempts) > 0 && attempts[len(attempts)-1].Node == o.node.cluster.ID()
}

// Tail returns the last output of each stream.
func (o outputs) Tail(ctx context.Context, id compute.ExecutionID, maxBytes int) (handler.Output, error) {
	t, err := o.follower.Tail(ctx, id, maxBytes)
	return handler.Output{Stdout: t.Stdout, Stderr: t.Stderr, Combined: t.Combined, Truncated: t.Truncated}, err
}

// Search returns the lines of an execution that q wants.
func (o outputs) Search(ctx context.Context, id compute.ExecutionID, q handler.LogQuery) (handler.LogLines, error) {
	least, ok := logs.ParseLevel(q.Level)
	if !ok {
		return handler.LogLines{}, compute.Errorf(compute.CodeInvalid, "%q is not a level.", q.Level)
	}
	r, err := o.follower.Search(ctx, id, logs.Search{Since: q.Since, Least: least, Text: q.Text, Limit: q.Limit})
	out := handler.LogLines{Lines: make([]handler.LogLine, len(r.Lines)), Total: r.Total, Missing: r.Missing}
	for i, l := range r.Lines {
		epoch, _ := logs.Split(l.Seq)
		out.Lines[i] = handler.LogLine{
			Line:  handler.Line{Seq: l.Seq, At: l.At, Stream: l.Stream.String(), Text: l.Text, Partial: l.Partial},
			Level: logs.LevelOf(l).String(), Attempt: epoch,
		}
	}
	return out, err
}

// methodDeleteLogs is the call by which a node has another delete output.
const methodDeleteLogs = "logs.delete"

// Delete removes all output of a terminal execution from the nodes that have
// it. One that does not answer keeps it until it is pruned with the remains of
// other attempts.
func (o outputs) Delete(ctx context.Context, id compute.ExecutionID) error {
	var errs []error
	nodes := make(map[compute.NodeID]bool)
	for _, a := range o.node.machine.View().Attempts(id) {
		nodes[a.Node] = true
	}
	if holders := (outputCopying{o.node}).holders(id); len(nodes) > 0 {
		for _, node := range holders[:min(len(holders), mayHaveCopies)] {
			nodes[node] = true
		}
	}
	for node := range nodes {
		if node == o.node.cluster.ID() {
			errs = append(errs, o.node.deleteHere(id))
			continue
		}
		_, err := o.node.cluster.Call(ctx, node, methodDeleteLogs, id.UUID[:])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// deleteHere removes the output of an execution and its copies from this node.
func (n *Node) deleteHere(id compute.ExecutionID) error {
	return errors.Join(n.logs.Delete(id), n.series.Delete(id), n.outputCopies.Delete(id))
}

// deleteOutput answers another node's methodDeleteLogs.
func (n *Node) deleteOutput(_ context.Context, _ rpc.Peer, req []byte) ([]byte, error) {
	var id compute.ExecutionID
	if err := id.UnmarshalBinary(req); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "Not an execution's id.")
	}
	return nil, n.deleteHere(id)
}
