package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/api/client"
	"berth/bench/faults/check"
	"berth/compute"
)

// selections is the workload of GPU selections: the same code runs once on each
// of two GPU types, under any fault.
type selections struct {
	session *session
	org     organization

	mu   sync.Mutex
	all  []compute.ExecutionID // Acknowledged selections.
	tags []string              // Tags of their operations, in the same order.
}

func (w *selections) name() string { return "selection" }

func (w *selections) clients() int { return 1 }

func (w *selections) prepare(ctx context.Context) (err error) {
	if w.org, err = w.session.newOrganization(ctx, "selections"); err != nil {
		return err
	}
	return w.session.admin.Grant(ctx, w.org.slug, 1_000_000*compute.Credit, "all that it needs")
}

func (w *selections) run(ctx context.Context, c *caller) {
	for c.pause(ctx, 8*time.Second) {
		op := c.next()
		start := client.StartSelection{
			Start: client.Start{
				Code: fmt.Sprintf(check.Code, 0.5+c.rng.Float64(), 0), Timeout: 60, Tags: []string{op},
				Network: compute.NetworkNone.String(), GPUTypes: []string{"h100", []string{"l40s", "t4"}[c.rng.IntN(2)]},
			},
			DeadlineSeconds: 60, EarlyStop: new(false),
		}
		for ctx.Err() == nil {
			node := c.any(w.org.key)
			var id compute.ExecutionID
			out, err := c.try(ctx, w.name(), func(ctx context.Context) error {
				started, err := node.SubmitSelection(ctx, start)
				id = started.ExecutionID
				return err
			})
			if out == done {
				w.mu.Lock()
				w.all, w.tags = append(w.all, id), append(w.tags, op)
				w.mu.Unlock()
				break
			}
			if out == refused {
				w.session.unexpected(w.name(), "submit", err)
				break
			}
			c.pause(ctx, 100*time.Millisecond)
		}
	}
}

// finish checks that every selection exists exactly once and has at most one
// sub-execution of each type.
func (w *selections) finish(context.Context) []check.Violation {
	var wrong []check.Violation
	b := w.session.final[w.org.slug]
	children := map[string]int{} // By parent and profile.
	parents := map[string]int{}  // By tag.
	for _, e := range b.executions {
		if e.ParentExecutionID != nil {
			key := e.ParentExecutionID.String() + " on " + e.HardwareProfile
			if children[key]++; children[key] == 2 {
				wrong = append(wrong, check.Violation{
					What: "two sub-executions", Object: key, Detail: "each type has one sub-execution",
				})
			}
			continue
		}
		if e.Metadata != nil {
			for _, tag := range e.Metadata.Tags {
				parents[tag]++
			}
		}
	}
	for i, id := range w.all {
		if _, there := b.executions[id.String()]; !there {
			wrong = append(wrong, check.Violation{
				What: "lost", Object: "selection " + id.String(), Detail: "its submit was acknowledged",
			})
		}
		if n := parents[w.tags[i]]; n != 1 {
			wrong = append(wrong, check.Violation{
				What: "selections", Object: "selection " + id.String(), Detail: fmt.Sprintf("its Idempotency-Key made %d", n),
			})
		}
	}
	slices.SortFunc(wrong, func(a, b check.Violation) int { return strings.Compare(a.Object, b.Object) })
	return wrong
}
