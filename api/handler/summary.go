package handler

import (
	"encoding/json"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// SummaryOf returns an execution as shown in lists.
func SummaryOf(view *fsm.View, e *compute.Execution) wire.ExecutionSummary {
	s := wire.ExecutionSummary{
		ExecutionID: e.ID, CreatedAt: e.CreatedAt, ExecutionType: e.Kind,
		Status: e.Status, HardwareProfile: e.Profile,
		StatusDetails:  wire.OrNull(e.Reason.String()),
		LocalImports:   importsOf(e),
		Billed:         BilledOf(e),
		ProviderBilled: costOf(e),
		ExeceletStart:  wire.AtOrNull(e.ExecletAt),
		StartTime:      wire.AtOrNull(e.StartedAt), JobStart: wire.AtOrNull(e.StartedAt),
		EndTime: wire.AtOrNull(e.EndedAt), JobEnd: wire.AtOrNull(e.EndedAt),
		FinishTime: wire.AtOrNull(e.FinishedAt),
		FileName:   wire.OrNull(e.FileName), Name: wire.OrNull(e.Name), JobType: wire.OrNull(e.JobType),
		Metadata: metadataOf(view, e),
		UserID:   &e.User, OrgID: &e.Org,
		Retries: e.Retries, MaxRetries: e.MaxRetries,
	}
	if !e.Parent.IsZero() {
		s.ParentExecutionID = &e.Parent
	}
	if e.Container != nil && (e.Reason == compute.ReasonImage || e.Reason == compute.ReasonStartFailed) {
		s.ErrorsDocker = wire.OrNull(e.Detail)
	}
	return s
}

// importsOf returns the recorded paths of the import files as JSON text. Older
// records have all of them, and may be large.
func importsOf(e *compute.Execution) *string {
	paths := compute.RecordedPaths(e.Imports)
	if len(paths) == 0 {
		return nil
	}
	data, err := json.Marshal(paths)
	if err != nil {
		return nil
	}
	return wire.OrNull(string(data))
}

// BilledOf returns the cost of an execution, nil until it is settled. A
// parent's cost is the sum of its children's.
func BilledOf(e *compute.Execution) *compute.Credits {
	if !e.Status.Terminal() {
		return nil
	}
	return &e.Billed
}

// costOf returns the operator's cost of an execution, nil until it is settled and
// where it is not known.
func costOf(e *compute.Execution) *compute.Credits {
	if e.ProviderCost == 0 {
		return nil
	}
	return &e.ProviderCost
}

// metadataOf returns the node, GPUs and tags of an execution.
func metadataOf(view *fsm.View, e *compute.Execution) *wire.Metadata {
	m := &wire.Metadata{
		GPUs: []compute.GPUID{}, GPUShares: []wire.GPUShare{},
		Attempt: e.Epoch, Tags: e.Tags, ImportFiles: e.ImportCount(),
	}
	if m.Tags == nil {
		m.Tags = []string{}
	}
	if c := e.Container; c != nil {
		m.Images, m.ImageDigest = c.Images, wire.OrNull(c.Digest)
	}
	for _, t := range e.GPUTypes {
		m.GPUTypes = append(m.GPUTypes, t.Type)
	}
	if e.Epoch == 0 {
		return m
	}
	attempts := view.Attempts(e.ID)
	if len(attempts) == 0 {
		return m
	}
	newest := attempts[len(attempts)-1]
	m.Node = wire.OrNull(NodeName(view, newest.Node))
	m.GPUs, m.GPUShares = gpusOf(newest), sharesOf(newest)
	if len(newest.GPUs) > 0 {
		level := levelOf(compute.IsolationOf(newest.GPUs))
		m.Isolation = &level
	}
	return m
}

// NodeName returns the name of a node, its identifier when it left.
func NodeName(view *fsm.View, id compute.NodeID) string {
	if n, ok := view.Node(id); ok && n.Name != "" {
		return n.Name
	}
	return id.String()
}

// gpusOf returns the GPUs that an attempt holds or held.
func gpusOf(a *compute.Attempt) []compute.GPUID {
	out := make([]compute.GPUID, len(a.GPUs))
	for i, share := range a.GPUs {
		out[i] = share.GPU
	}
	return out
}

// sharesOf returns the share of each GPU that an attempt holds or held.
func sharesOf(a *compute.Attempt) []wire.GPUShare {
	out := make([]wire.GPUShare, len(a.GPUs))
	for i, share := range a.GPUs {
		out[i] = wire.GPUShare{
			GPU: share.GPU, Milli: share.Milli, VRAMMiB: share.VRAMMiB,
			Isolation: levelOf(share.Isolation), IsolationBy: share.Isolation.String(),
		}
	}
	return out
}

// levelOf returns the guarantee of a GPU's isolation, "" if it was not
// recorded.
func levelOf(i compute.Isolation) string {
	if i == compute.IsolationNone {
		i = compute.IsolationSimulated
	}
	return i.Level()
}

// AttemptsOf returns the attempts of an execution, oldest first.
func AttemptsOf(view *fsm.View, e *compute.Execution) []wire.Attempt {
	out := []wire.Attempt{}
	for _, a := range view.Attempts(e.ID) {
		status := compute.StatusStarting
		switch {
		case a.Ended:
			status = a.Status
		case a.Started:
			status = compute.StatusRunning
		}
		out = append(out, wire.Attempt{
			Attempt: a.Epoch, Node: NodeName(view, a.Node), GPUs: gpusOf(a), Shares: sharesOf(a),
			PlacedAt: a.PlacedAt, EndedAt: wire.AtOrNull(a.EndedAt),
			Status: status.String(), Reason: wire.OrNull(a.Reason.String()),
		})
	}
	return out
}
