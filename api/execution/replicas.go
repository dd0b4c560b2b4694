package execution

import (
	"context"
	"strings"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// Limits of what is shown of the output of a failed engine.
const (
	outputTail  = 4 << 10 // Bytes,
	outputLines = 20      // and lines.
	outputWait  = 2 * time.Second
)

// ReplicasOf returns a row per replica of a service, none for other executions.
func ReplicasOf(view *fsm.View, e *compute.Execution) []wire.ServiceReplica {
	out := []wire.ServiceReplica{}
	if e.Service == nil {
		return out
	}
	ends := e.Status.Terminal() || e.Stop != compute.StopNone
	for _, slot := range e.Service.Slots {
		row := wire.ServiceReplica{
			Number: slot.Number, ExecutionID: slot.Replica, Crashes: slot.Crashes, Restarts: slot.Restarts,
		}
		if !slot.Live && !slot.Done && !ends {
			row.NextStart = wire.AtOrNull(slot.NextAt)
		}
		if c, ok := view.AnyExecution(slot.Replica); ok {
			row.Status, row.StatusDetails, row.Detail = c.Status, wire.OrNull(c.Reason.String()), wire.OrNull(c.Detail)
			row.Ready, row.ReadyAt = isServing(view, c), wire.AtOrNull(c.ReadyAt)
			row.StartTime, row.CreditsEnd = wire.AtOrNull(c.StartedAt), wire.AtOrNull(c.CreditsEnd)
			row.Node = handler.SummaryOf(view, c).Metadata.Node
		}
		out = append(out, row)
	}
	return out
}

// isServing reports whether a replica is ready on a node that is heard, and is not to stop.
func isServing(view *fsm.View, e *compute.Execution) bool {
	attempts := view.Attempts(e.ID)
	if !e.Ready || e.Stop != compute.StopNone || len(attempts) == 0 {
		return false
	}
	n, ok := view.Node(attempts[len(attempts)-1].Node)
	return ok && n.State == compute.NodeUp
}

// LastLines returns the last lines of the engine of a deployment that has failed; none for
// other executions.
func LastLines(ctx context.Context, logs handler.Logs, e *compute.Execution) []string {
	if e.Deployment == nil || e.Deployment.State != compute.DeploymentFailed || e.Deployment.Last.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, outputWait)
	defer cancel()
	text, err := logs.Tail(ctx, e.Deployment.Last, outputTail)
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(text.Combined), "\n"), "\n")
	return lines[max(len(lines)-outputLines, 0):]
}
