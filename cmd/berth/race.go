package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
)

// How often a GPU selection is looked at, and how much of a line of output is
// kept while its end has not come.
const (
	watchEvery = 300 * time.Millisecond
	maxPartial = 256
)

// lane is one GPU type in a GPU selection, as it is shown.
type lane struct {
	gpuType  string
	node     string
	status   compute.Status
	details  string  // Why it stands so.
	progress float64 // 0 to 1.
}

// laneView shows the lanes of a GPU selection.
type laneView interface {
	update(lanes []lane)
	close()
}

// race follows a GPU selection.
type race struct {
	client *client.Client
	id     compute.ExecutionID

	mu       sync.Mutex
	progress map[compute.ExecutionID]float64
}

// watch shows the GPU selection until it has ended and returns what it found.
func watch(cmd *cobra.Command, c *client.Client, id compute.ExecutionID) (wire.Selection, error) {
	view := newLaneView(cmd.ErrOrStderr())
	defer view.close()
	r := &race{client: c, id: id, progress: map[compute.ExecutionID]float64{}}
	return r.run(cmd.Context(), view)
}

func (r *race) run(ctx context.Context, view laneView) (wire.Selection, error) {
	var followers sync.WaitGroup
	defer followers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		s, err := r.client.Selection(ctx, r.id)
		if err != nil {
			return s, err
		}
		for _, row := range s.Rows {
			for _, one := range row.Runs {
				if one.Status != compute.StatusPending && r.enter(one.ExecutionID) {
					followers.Go(func() { r.follow(ctx, one.ExecutionID) })
				}
			}
		}
		view.update(r.lanes(s))
		if s.Status.Terminal() {
			return s, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

// enter reports whether the sub-execution is new, and notes it.
func (r *race) enter(id compute.ExecutionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.progress[id]
	if !known && !id.IsZero() {
		r.progress[id] = 0
	}
	return !known && !id.IsZero()
}

// follow notes the progress that the sub-execution prints. An error ends it:
// progress is a courtesy, the result does not depend on it.
func (r *race) follow(ctx context.Context, id compute.ExecutionID) {
	var partial string
	for event, err := range r.client.Stream(ctx, id, 0) {
		if err != nil {
			return
		}
		if event.Stderr {
			continue
		}
		text := partial + event.Content
		for {
			line, rest, whole := strings.Cut(text, "\n")
			if !whole {
				break
			}
			if p, ok := compute.ParseProgress(line); ok {
				r.mu.Lock()
				r.progress[id] = p
				r.mu.Unlock()
			}
			text = rest
		}
		partial = text[max(0, len(text)-maxPartial):]
	}
}

// lanes returns the rows of s as they are shown.
func (r *race) lanes(s wire.Selection) []lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	lanes := make([]lane, len(s.Rows))
	for i, row := range s.Rows {
		lanes[i] = lane{gpuType: row.GPUType, status: row.Status, progress: r.progressOf(row)}
		if row.Node != nil {
			lanes[i].node = *row.Node
		}
		if row.StatusDetails != nil {
			lanes[i].details = *row.StatusDetails
		}
	}
	return lanes
}

// progressOf returns how far a row is: the mean of its runs, of which those
// that have ended are whole.
func (r *race) progressOf(row wire.SelectionRow) float64 {
	if row.Status == compute.StatusCompleted {
		return 1
	}
	sum := 0.0
	for _, one := range row.Runs {
		if one.Status == compute.StatusCompleted {
			sum++
		} else {
			sum += r.progress[one.ExecutionID]
		}
	}
	return sum / float64(max(len(row.Runs), 1))
}
