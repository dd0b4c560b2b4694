package leader

import (
	"context"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// servicePeriod is how often the leader checks whether services miss replicas.
const servicePeriod = 500 * time.Millisecond

// startReplicas creates the replicas that services miss. They are missing at first,
// after a replica has ended and its back-off is over, after a service was scaled
// up, and before an outdated one is stopped. It keeps nothing, because missing
// replicas follow from the state alone.
func (l *Leader) startReplicas(ctx context.Context, term uint64) {
	view := l.Machine.View()
	for parent := range view.Services() {
		surge := command.SurgeService{Term: term, Service: parent.ID}
		if view.MaySurge(parent) && view.Allows(surge) == nil {
			if _, err := l.do(ctx, surge); err != nil && ctx.Err() == nil {
				l.Logger.Warn("replica not replaced", "execution", parent.ID, "err", err)
			}
			continue // The next turn sees its place.
		}
		cmd := missingReplicas(parent, compute.InstantOf(l.Now()), l.NewID)
		cmd.Term = term
		if len(cmd.Replicas) == 0 || view.Allows(cmd) != nil {
			continue
		}
		if _, err := l.do(ctx, cmd); err != nil && ctx.Err() == nil {
			l.Logger.Warn("replicas not created", "execution", parent.ID, "err", err)
		}
	}
}

// missingReplicas returns the command that creates what a service misses at an
// instant.
func missingReplicas(parent *compute.Execution, now compute.Instant, newID func() compute.UUID) command.StartReplicas {
	cmd := command.StartReplicas{Service: parent.ID}
	if parent.Stop != compute.StopNone {
		return cmd
	}
	numbers, _ := parent.Service.Missing(now)
	for _, n := range numbers {
		cmd.Replicas = append(cmd.Replicas, command.NewReplica{Number: n, ID: compute.ExecutionID{UUID: newID()}})
	}
	return cmd
}
