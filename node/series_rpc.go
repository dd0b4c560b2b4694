package node

import (
	"context"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/api/handler"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fault"
	"berth/node/series"
)

// methodSeries is the call by which a node reads the metrics of an attempt from the
// node that executed it.
const methodSeries = "series.read"

// seriesRequest asks for the points of an attempt, as means over steps.
type seriesRequest struct {
	Execution compute.ExecutionID `cbor:"1,keyasint"`
	Epoch     uint64              `cbor:"2,keyasint"`
	From      compute.Instant     `cbor:"3,keyasint"`
	To        compute.Instant     `cbor:"4,keyasint"`
	StepMs    int64               `cbor:"5,keyasint"`
}

// open keeps the metrics of attempts, here and for others.
func (s attemptSeries) open() {
	s.node.recorder = series.NewRecorder(series.Config{
		Store: s.node.series, Work: s.node.work, Resources: s.node.executor.Resources,
		Poll: s.node.sampler.Poll,
		Last: func(id compute.GPUID) (compute.GPUSample, bool) {
			r, ok := s.node.sampler.Last(id)
			return r.GPUSample, ok
		},
		Now: s.node.opts.Now, Logger: s.node.logger,
	})
	s.node.cluster.Handle(methodSeries, cluster.Servers, s.serve)
}

// local reads metrics from this node's disk.
func (s attemptSeries) local(q seriesRequest) ([]series.Point, error) {
	points, err := s.node.series.Read(q.Execution, q.Epoch, q.From, q.To)
	return series.Thin(points, max(q.StepMs, series.Interval.Milliseconds())), err
}

// serve answers another node's methodSeries.
func (s attemptSeries) serve(_ context.Context, _ rpc.Peer, req []byte) ([]byte, error) {
	var q seriesRequest
	if err := cbor.Unmarshal(req, &q); err != nil || q.Execution.IsZero() {
		return nil, compute.Errorf(compute.CodeInvalid, "Not a request for metrics.")
	}
	points, err := s.local(q)
	if err != nil {
		return nil, err
	}
	return cbor.Marshal(points)
}

// seriesMeter measures attempts as gpuUsages does, and archives their metrics at the end.
type seriesMeter struct {
	*gpuUsages

	node *Node
	put  func(context.Context, []byte) (compute.Hash, error)
}

// archiveTime bounds how long the end of an attempt waits for its metrics to be archived.
// Without it they are on the attempt's node alone.
const archiveTime = 3 * time.Second

// Measure adds to the outcome what the attempt did, and where that is archived.
func (m seriesMeter) Measure(o *compute.Outcome) {
	m.gpuUsages.Measure(o)
	data, err := m.node.series.Archive(o.Execution, o.Epoch)
	if err == nil && len(data) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), archiveTime)
		defer cancel()
		var blob compute.Hash
		if blob, err = m.put(ctx, data); err == nil {
			fault.Point("series.archived")
			o.Series = &blob
		}
	}
	if err != nil {
		m.node.logger.Warn("metrics not archived", "execution", o.Execution, "attempt", o.Epoch, "err", err)
	}
}

// attemptSeries gives the API the metrics of attempts, wherever they are.
type attemptSeries struct{ node *Node }

// Read returns the points of an attempt that are asked for.
func (s attemptSeries) Read(
	ctx context.Context, e *compute.Execution, a *compute.Attempt, q handler.SeriesQuery,
) ([]handler.SeriesPoint, error) {
	req := seriesRequest{a.Execution, a.Epoch, q.From, q.To, q.Step.Milliseconds()}
	points, err := s.archived(ctx, e, req)
	if compute.CodeOf(err) == compute.CodeNotFound {
		points, err = s.read(ctx, a.Node, req)
	}
	if err != nil {
		return nil, err
	}
	out := make([]handler.SeriesPoint, len(points))
	for i, p := range points {
		out[i] = handler.SeriesPoint{At: p.At, Values: p.Values}
	}
	return out, nil
}

// archived reads the archived metrics of an attempt. The code is not_found if there are
// none: it has not ended, or its execution is older than the replicated state.
func (s attemptSeries) archived(ctx context.Context, e *compute.Execution, q seriesRequest) ([]series.Point, error) {
	blob, ok := e.SeriesOf(q.Epoch)
	if !ok {
		return nil, compute.Errorf(compute.CodeNotFound, "These metrics are not archived.")
	}
	data, err := s.node.blobs.Get(ctx, blob)
	if err != nil {
		return nil, err
	}
	points, err := series.ReadArchive(data, q.From, q.To)
	return series.Thin(points, max(q.StepMs, series.Interval.Milliseconds())), err
}

func (s attemptSeries) read(
	ctx context.Context, node compute.NodeID, q seriesRequest,
) (points []series.Point, err error) {
	if node == s.node.cluster.ID() {
		return s.local(q)
	}
	req, err := cbor.Marshal(q)
	if err != nil {
		return nil, err
	}
	answer, err := s.node.cluster.Call(ctx, node, methodSeries, req)
	if err != nil {
		return nil, err
	}
	return points, cbor.Unmarshal(answer, &points)
}

// The API has the metrics in the order of package series.
var _ = [1]struct{}{}[handler.SeriesMetrics-series.Metrics]
