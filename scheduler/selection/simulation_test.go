package selection_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"berth/compute"
	"berth/scheduler/selection"
)

// gpuKind is a GPU type of the price book with its relative speed.
type gpuKind struct {
	name  string
	speed float64
	price compute.Price // Micro-credits per second.
}

var gpuKinds = []gpuKind{
	{"gpu.a10", 0.25, 250},
	{"gpu.a100", 0.60, 550},
	{"gpu.b200", 1.60, 1700},
	{"gpu.h100", 1.00, 900},
	{"gpu.h200", 1.10, 1100},
	{"gpu.l4", 0.20, 200},
	{"gpu.l40s", 0.45, 400},
	{"gpu.t4", 0.12, 100},
}

// simRun is one run whose whole course is decided beforehand.
type simRun struct {
	id     compute.ExecutionID
	price  compute.Price
	points []compute.ProgressPoint
	length time.Duration
	begun  time.Duration // In the selection's time; negative before.
	ended  time.Duration
	status compute.Status
	reason compute.Reason
	least  time.Duration
}

// simSelection is a GPU selection in simulated time.
type simSelection struct {
	objective compute.Objective
	repeats   int
	types     []gpuKind
	runs      [][]*simRun // By type, then by repeat.
}

// newSimSelection draws a selection: GPU types, a program with quick and slow parts, a
// start that no GPU makes faster, and for each run noise in every step, drift,
// stalls and a difference of its own.
func newSimSelection(rng *rand.Rand, objective compute.Objective, repeats int) *simSelection {
	r := &simSelection{objective: objective, repeats: repeats}
	work := math.Exp(rng.NormFloat64()*0.8) * 20 // Seconds on an h100.
	shape := simShape(rng)
	start := rng.Float64() * 3
	noise := math.Exp(rng.Float64()*math.Log(15)) * 0.02 // Per step: 2 to 30 %.
	n := 0
	for _, i := range rng.Perm(len(gpuKinds))[:3+rng.IntN(4)] {
		k := gpuKinds[i]
		speed := k.speed * math.Exp(rng.NormFloat64()*0.3) // Speed of this program on it.
		var runs []*simRun
		for range repeats {
			n++
			run := simRunOf(rng, shape, work/speed*math.Exp(rng.NormFloat64()*0.04), start, noise)
			run.id.UUID[15], run.price = byte(n), k.price
			runs = append(runs, run)
		}
		r.types, r.runs = append(r.types, k), append(r.runs, runs)
	}
	return r
}

// simShape draws how much of the work each step is.
func simShape(rng *rand.Rand) []float64 {
	steps := 10 + rng.IntN(190)
	shape, sum := make([]float64, steps), 0.0
	slope := (rng.Float64() - 0.5) * 1.6 // From quick to slow steps, or the other way.
	for i := range shape {
		shape[i] = (1 + slope*(float64(i)/float64(steps)-0.5)) * math.Exp(rng.NormFloat64()*0.2)
		sum += shape[i]
	}
	for i := range shape {
		shape[i] /= sum
	}
	return shape
}

// simRunOf draws the course of one run that takes about so many seconds.
func simRunOf(rng *rand.Rand, shape []float64, seconds, start, noise float64) *simRun {
	run := &simRun{begun: -1}
	at, drift := start*math.Exp(rng.NormFloat64()*0.1), 0.0
	for i, part := range shape {
		drift = 0.95*drift + rng.NormFloat64()*0.02
		step := part * seconds * math.Exp(drift+rng.NormFloat64()*noise)
		if rng.IntN(200) == 0 {
			step += rng.Float64() // A stall.
		}
		at += step
		run.points = append(run.points, compute.ProgressPoint{
			Part: float64(i+1) / float64(len(shape)), At: time.Duration(at * float64(time.Second)),
		})
	}
	run.length = run.points[len(run.points)-1].At
	return run
}

// How often a leader checks a selection, and how many points of progress it gets.
const (
	simTick   = time.Second
	simPoints = 32
)

// play lets the sub-executions of a type follow each other, with stops or to the end,
// and returns the verdict and the cost.
func (r *simSelection) play(stops bool) (compute.Verdict, compute.Credits) {
	if !stops {
		r.advance(math.MaxInt64)
	}
	for now := time.Duration(0); r.advance(now); now += simTick {
		if !r.answered() {
			continue // Nothing is stopped before.
		}
		for _, stop := range r.state(now).Stops() {
			r.stop(stop, now)
		}
	}
	var spent compute.Credits
	candidates := r.candidates()
	for _, c := range candidates {
		for _, run := range c.Runs {
			spent += run.Credits
		}
	}
	return selection.Judge(r.objective, candidates), spent
}

// answered reports whether any run has completed.
func (r *simSelection) answered() bool {
	return slices.ContainsFunc(r.runs, func(runs []*simRun) bool { return runs[0].status == compute.StatusCompleted })
}

// advance brings every type to now, and reports whether any is live.
func (r *simSelection) advance(now time.Duration) (live bool) {
	for _, runs := range r.runs {
		from := time.Duration(0)
		for _, run := range runs {
			if run.status.Terminal() {
				from = run.ended
				continue
			}
			if run.begun < 0 {
				run.begun, run.status = from, compute.StatusRunning
			}
			if run.begun+run.length > now {
				live = true
				break
			}
			run.status, run.ended = compute.StatusCompleted, run.begun+run.length
			from = run.ended
		}
	}
	return live
}

// stop ends a run, and with it those behind it.
func (r *simSelection) stop(stop compute.CandidateStop, now time.Duration) {
	for _, runs := range r.runs {
		for i, run := range runs {
			if run.id != stop.Execution {
				continue
			}
			for _, later := range runs[i:] {
				later.status, later.reason, later.ended = compute.StatusCancelled, stop.Reason, now
			}
			run.least = stop.Predicted
		}
	}
}

// candidates returns the selection as a leader sees it.
func (r *simSelection) candidates() []compute.Candidate {
	out := make([]compute.Candidate, len(r.runs))
	for i, runs := range r.runs {
		out[i].Profile = r.types[i].name
		for _, run := range runs {
			c := compute.CandidateRun{
				Execution: run.id, Status: run.status, Reason: run.reason, Price: run.price, Predicted: run.least,
			}
			if run.status.Terminal() && run.begun >= 0 {
				c.Duration = run.ended - run.begun
				c.Credits = run.price.Charge(c.Duration)
			}
			out[i].Runs = append(out[i].Runs, c)
		}
	}
	return out
}

func (r *simSelection) state(now time.Duration) *selection.Live {
	live := &selection.Live{
		Objective: r.objective, Repeats: r.repeats, Created: submitted, Now: at(now),
		Candidates: r.candidates(), Progress: map[compute.ExecutionID]selection.Progress{},
	}
	for _, runs := range r.runs {
		for _, run := range runs {
			if run.begun < 0 {
				continue
			}
			elapsed := min(now-run.begun, run.length)
			n := sort.Search(len(run.points), func(i int) bool { return run.points[i].At > elapsed })
			live.Progress[run.id] = selection.Progress{Elapsed: elapsed, Points: compute.ThinProgress(run.points[:n], simPoints)}
		}
	}
	return live
}

// reset makes the selection ready to be played again, with the same course.
func (r *simSelection) reset() {
	for _, runs := range r.runs {
		for _, run := range runs {
			run.begun, run.ended, run.status, run.reason, run.least = -1, 0, 0, 0, 0
		}
	}
}

// TestEarlyStopsFindTheWinner simulates a thousand selections for each
// objective and compares the winner with and without early stops.
func TestEarlyStopsFindTheWinner(t *testing.T) {
	for _, objective := range []compute.Objective{
		compute.ObjectiveFastest, compute.ObjectiveCheapest, compute.ObjectiveBalanced,
	} {
		for _, repeats := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", objective, repeats), func(t *testing.T) {
				t.Parallel()
				selections := 1000 / (1 + repeats/3*3)
				rng := rand.New(rand.NewPCG(uint64(objective)+1, uint64(repeats)))
				right, front := 0, 0
				var spent, whole compute.Credits
				for range selections {
					r := newSimSelection(rng, objective, repeats)
					want, full := r.play(false)
					r.reset()
					got, some := r.play(true)
					if got.Best == want.Best {
						right++
					}
					if sameFront(got, want) {
						front++
					}
					spent, whole = spent+some, whole+full
				}
				t.Logf("right winner in %d of %d selections, whole Pareto front in %d, %.1f %% of the credits saved",
					right, selections, front, 100*(1-float64(spent)/float64(whole)))
				if right*100 < selections*99 {
					t.Errorf("the right winner in %d of %d selections, want 99 %%", right, selections)
				}
				if objective == compute.ObjectiveBalanced && repeats == 1 && front*100 < selections*98 {
					t.Errorf("the whole Pareto front in %d of %d selections, want 98 %%", front, selections)
				}
				if saved := 1 - float64(spent)/float64(whole); saved < 0.1 && objective != compute.ObjectiveCheapest {
					t.Errorf("%.1f %% of the credits saved, want a tenth", 100*saved)
				}
			})
		}
	}
}

func sameFront(a, b compute.Verdict) bool {
	for i := range a.Rows {
		if a.Rows[i].Pareto != b.Rows[i].Pareto {
			return false
		}
	}
	return true
}
