package api

import (
	"encoding/json"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// summaryOf returns an execution as shown in lists.
func summaryOf(view *fsm.View, e *compute.Execution) wire.ExecutionSummary {
	s := wire.ExecutionSummary{
		ExecutionID: e.ID, CreatedAt: e.CreatedAt, ExecutionType: e.Kind,
		Status: e.Status, HardwareProfile: e.Profile,
		StatusDetails:  orNull(e.Reason.String()),
		LocalImports:   importsOf(e),
		Billed:         billedOf(e),
		ProviderBilled: costOf(e),
		ExeceletStart:  atOrNull(e.ExecletAt),
		StartTime:      atOrNull(e.StartedAt), JobStart: atOrNull(e.StartedAt),
		EndTime: atOrNull(e.EndedAt), JobEnd: atOrNull(e.EndedAt),
		FinishTime: atOrNull(e.FinishedAt),
		FileName:   orNull(e.FileName), Name: orNull(e.Name), JobType: orNull(e.JobType),
		Metadata: metadataOf(view, e),
		UserID:   &e.User, OrgID: &e.Org,
		Retries: e.Retries, MaxRetries: e.MaxRetries,
	}
	if !e.Parent.IsZero() {
		s.ParentExecutionID = &e.Parent
	}
	if e.Container != nil && (e.Reason == compute.ReasonImage || e.Reason == compute.ReasonStartFailed) {
		s.ErrorsDocker = orNull(e.Detail)
	}
	return s
}

// orNull returns s, nil for the empty string.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// atOrNull returns at, nil when it is unset.
func atOrNull(at compute.Instant) *compute.Instant {
	if at.IsZero() {
		return nil
	}
	return &at
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
	return orNull(string(data))
}

// billedOf returns the cost of an execution, nil until it is settled. A
// parent's cost is the sum of its children's.
func billedOf(e *compute.Execution) *compute.Credits {
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
		m.Images, m.ImageDigest = c.Images, orNull(c.Digest)
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
	m.Node = orNull(nodeName(view, newest.Node))
	m.GPUs, m.GPUShares = gpusOf(newest), sharesOf(newest)
	if len(newest.GPUs) > 0 {
		level := levelOf(compute.IsolationOf(newest.GPUs))
		m.Isolation = &level
	}
	return m
}

// nodeName returns the name of a node, its identifier when it left.
func nodeName(view *fsm.View, id compute.NodeID) string {
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

// errorsOf returns readable reasons why an execution did not complete, none
// while it is live.
func errorsOf(e *compute.Execution) []string {
	if !e.Status.Terminal() || e.Status == compute.StatusCompleted {
		return []string{}
	}
	return []string{errorOf(e)}
}

// errorOf returns why an ended execution did not complete.
func errorOf(e *compute.Execution) string {
	switch {
	case e.Detail == "" && e.Reason == compute.ReasonNone:
		return e.Status.String()
	case e.Detail == "":
		return e.Reason.String()
	case e.Reason == compute.ReasonNone:
		return e.Detail
	}
	return e.Reason.String() + ": " + e.Detail
}

// attemptsOf returns the attempts of an execution, oldest first.
func attemptsOf(view *fsm.View, e *compute.Execution) []wire.Attempt {
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
			Attempt: a.Epoch, Node: nodeName(view, a.Node), GPUs: gpusOf(a), Shares: sharesOf(a),
			PlacedAt: a.PlacedAt, EndedAt: atOrNull(a.EndedAt),
			Status: status.String(), Reason: orNull(a.Reason.String()),
		})
	}
	return out
}
