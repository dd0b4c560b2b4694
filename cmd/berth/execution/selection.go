package execution

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

// The poll interval of a GPU selection, and how much of an incomplete line of
// output is kept.
const (
	watchEvery = 300 * time.Millisecond
	maxPartial = 256
)

// candidate is the displayed state of one GPU type in a GPU selection.
type candidate struct {
	gpuType  string
	node     string
	status   compute.Status
	details  string  // The reason of the status.
	progress float64 // 0 to 1.
}

// candidateView shows the candidates of a GPU selection.
type candidateView interface {
	update(candidates []candidate)
	close()
}

// selectionFollower follows a GPU selection.
type selectionFollower struct {
	client *client.Client
	id     compute.ExecutionID

	mu       sync.Mutex
	progress map[compute.ExecutionID]float64
}

// Watch shows the GPU selection until it has ended and returns the result.
func Watch(cmd *cobra.Command, c *client.Client, id compute.ExecutionID) (wire.Selection, error) {
	view := newCandidateView(cmd.ErrOrStderr())
	defer view.close()
	f := &selectionFollower{client: c, id: id, progress: map[compute.ExecutionID]float64{}}
	return f.run(cmd.Context(), view)
}

func (f *selectionFollower) run(ctx context.Context, view candidateView) (wire.Selection, error) {
	var followers sync.WaitGroup
	defer followers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		s, err := f.client.Selection(ctx, f.id)
		if err != nil {
			return s, err
		}
		for _, row := range s.Rows {
			for _, one := range row.Runs {
				if one.Status != compute.StatusPending && f.enter(one.ExecutionID) {
					followers.Go(func() { f.follow(ctx, one.ExecutionID) })
				}
			}
		}
		view.update(f.candidates(s))
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

// enter records a sub-execution and reports whether it is new.
func (f *selectionFollower) enter(id compute.ExecutionID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.progress[id]
	if !known && !id.IsZero() {
		f.progress[id] = 0
	}
	return !known && !id.IsZero()
}

// follow records the progress that the sub-execution prints. It stops at an
// error, because the result does not depend on progress.
func (f *selectionFollower) follow(ctx context.Context, id compute.ExecutionID) {
	var partial string
	for event, err := range f.client.Stream(ctx, id, 0) {
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
				f.mu.Lock()
				f.progress[id] = p
				f.mu.Unlock()
			}
			text = rest
		}
		partial = text[max(0, len(text)-maxPartial):]
	}
}

// candidates returns the displayed state of the rows of s.
func (f *selectionFollower) candidates(s wire.Selection) []candidate {
	f.mu.Lock()
	defer f.mu.Unlock()
	candidates := make([]candidate, len(s.Rows))
	for i, row := range s.Rows {
		candidates[i] = candidate{gpuType: row.GPUType, status: row.Status, progress: f.progressOf(row)}
		if row.Node != nil {
			candidates[i].node = *row.Node
		}
		if row.StatusDetails != nil {
			candidates[i].details = *row.StatusDetails
		}
	}
	return candidates
}

// progressOf returns the mean progress of a row's sub-executions. A completed
// one counts as 1.
func (f *selectionFollower) progressOf(row wire.SelectionRow) float64 {
	if row.Status == compute.StatusCompleted {
		return 1
	}
	sum := 0.0
	for _, one := range row.Runs {
		if one.Status == compute.StatusCompleted {
			sum++
		} else {
			sum += f.progress[one.ExecutionID]
		}
	}
	return sum / float64(max(len(row.Runs), 1))
}
