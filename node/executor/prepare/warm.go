package prepare

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	protocol "berth/attempt"
	"berth/compute"
	"berth/fault"
	"berth/node/executor/cgroup"
	"berth/node/executor/live"
	"berth/node/executor/supervise"
)

const (
	warmMost = 2 // Warm sandboxes of a node.

	// warmAfter is the time without starts after which sandboxes are made for the next ones. To make one takes
	// the processors that executions which come one after the other need.
	warmAfter = 250 * time.Millisecond

	warmGroup  = "warm."          // In the names of their cgroups, behind the prefix of the node.
	takeWithin = time.Second      // An attempt waits so long for one that is being made.
	endWithin  = 10 * time.Second // For those that nobody took to go when the node stops.
)

// warmKey is what an execution asks of its sandbox that another may not. All else of two
// warm sandboxes of a node is equal.
type warmKey struct {
	network       compute.Network
	memoryMiB     int64
	scratchMiB    int64
	scratchMemory bool
	mounts        string // Those of the volumes that all executions have.
}

// warmSandbox is a sandbox whose interpreter has started and waits for the code of one attempt,
// which would start later by the time that both take. An attempt gets one that no other had.
type warmSandbox struct {
	process *supervise.Process
	group   *cgroup.Group
	res     *resources // The attempt gets them too.
}

// close ends the sandbox.
func (w *warmSandbox) close() {
	w.process.Close()
	w.res.close()
	_ = w.group.Remove(live.KillTimeout) // Its supervisor may be gone. The next process of the node removes it too.
}

// warmPlace is the place of a warm sandbox that is there, or is being made.
type warmPlace struct {
	key     warmKey
	done    chan struct{} // Closed once it is there, or cannot be.
	sandbox *warmSandbox  // Nil if it could not be made.
	limit   *time.Timer
}

// warmPool has the warm sandboxes of a node. Its methods are safe for concurrent use.
type warmPool struct {
	mu sync.Mutex

	places []*warmPlace
	making bool
	closed bool
}

// take returns a warm sandbox, nil if there is none. It waits for one that is being made, which
// has begun earlier than another could.
func (p *warmPool) take(key warmKey) *warmSandbox {
	p.mu.Lock()
	at := slices.IndexFunc(p.places, func(place *warmPlace) bool { return place.key == key })
	if at < 0 {
		p.mu.Unlock()
		return nil
	}
	place := p.places[at]
	p.places = slices.Delete(p.places, at, at+1)
	p.mu.Unlock()
	late := time.NewTimer(takeWithin)
	defer late.Stop()
	select {
	case <-place.done:
	case <-late.C:
		if p.leave(place) {
			return nil
		}
	}
	if place.limit != nil {
		place.limit.Stop()
	}
	return place.sandbox
}

// leave gives a place back whose sandbox is still being made. It reports false if it is made.
func (p *warmPool) leave(place *warmPlace) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-place.done:
		return false
	default:
		p.places = append(p.places, place)
		return true
	}
}

// begin returns a place for a sandbox that the caller is to make, nil if there are enough or one
// is being made. The oldest one of another key makes room.
func (p *warmPool) begin(key warmKey) *warmPlace {
	place, old := p.reserve(key)
	if old != nil {
		old.close()
	}
	return place
}

// reserve is begin, but leaves the end of the sandbox that makes room to the caller.
func (p *warmPool) reserve(key warmKey) (place *warmPlace, old *warmSandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := 0
	for _, place := range p.places {
		if place.key == key {
			have++
		}
	}
	if p.closed || p.making || have >= warmMost {
		return nil, nil
	}
	if len(p.places) >= warmMost {
		at := slices.IndexFunc(p.places, func(place *warmPlace) bool { return place.key != key })
		old = p.drop(p.places[at])
	}
	place = &warmPlace{key: key, done: make(chan struct{})}
	p.places, p.making = append(p.places, place), true
	return place, old
}

// finish puts a sandbox in its place, or says with nil that it could not be made.
func (p *warmPool) finish(place *warmPlace, made *warmSandbox) {
	p.mu.Lock()
	p.making = false
	place.sandbox = made
	if made != nil {
		place.limit = time.AfterFunc(spareTime, func() {
			p.mu.Lock()
			old := p.drop(place)
			p.mu.Unlock()
			if old != nil {
				old.close()
			}
		})
	}
	close(place.done)
	if made == nil {
		p.places = slices.DeleteFunc(p.places, func(other *warmPlace) bool { return other == place })
	}
	p.mu.Unlock()
}

// drop takes the sandbox of a place, which the caller is to close, nil if somebody has it. The
// caller holds mu. No place is dropped while its sandbox is made.
func (p *warmPool) drop(place *warmPlace) *warmSandbox {
	at := slices.Index(p.places, place)
	if at < 0 {
		return nil
	}
	p.places = slices.Delete(p.places, at, at+1)
	place.limit.Stop()
	return place.sandbox
}

// close ends the sandboxes that nobody took, and returns once they have gone.
func (p *warmPool) close() {
	p.mu.Lock()
	p.closed = true
	left := p.places
	p.places = nil
	p.mu.Unlock()
	var group sync.WaitGroup
	for _, place := range left {
		group.Go(func() {
			<-place.done
			if place.sandbox != nil {
				place.limit.Stop()
				place.sandbox.process.End(endWithin)
				place.sandbox.close()
			}
		})
	}
	group.Wait()
}

// warmer makes warm sandboxes, and hands them to attempts.
type warmer struct {
	places  warmPool
	started chan *warmKey // Has the key of an attempt that started; nil if it cannot have a warm sandbox.

	cfg         *Config
	dirs        *live.Dirs
	groups      *live.Groups
	pool        *resourcePool
	specs       *specs
	supervisors *supervisors
	volumes     *volumes
	log         *slog.Logger
}

// keyFor returns the key of the warm sandboxes that an execution can have. It reports false
// if the execution asks for more than all of them have.
func (m *warmer) keyFor(w compute.Work, bundle *compute.Bundle, early bool) (warmKey, bool) {
	x := w.Execution
	devices := slices.ContainsFunc(w.GPUs, func(gpu compute.GPU) bool { return !gpu.Simulated })
	if !early || devices || protocol.MayLeave(x) || len(bundle.PriorImports) > 0 ||
		bundle.Cell > 0 || bundle.KernelState != "" || len(bundle.Stdin) > 0 {
		return warmKey{}, false
	}
	mounts, err := m.volumes.describe()
	return warmKey{
		network: x.Network, memoryMiB: limitsOf(w, m.cfg.HostCPUs, m.cfg.HostMemoryMiB).memoryMiB,
		scratchMiB: x.ScratchMiB, scratchMemory: x.ScratchMemory, mounts: mounts,
	}, err == nil
}

// take returns a warm sandbox that is alive, nil if there is none. The kernel may have ended one
// to free memory.
func (m *warmer) take(key warmKey) *warmSandbox {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	defer null.Close()
	for {
		w := m.places.take(key)
		if w == nil || w.process.IsWarm(null) {
			return w
		}
		w.close()
	}
}

// run makes warm sandboxes until ctx ends: as the last attempt that can have one asked, once
// none has started for a while.
func (m *warmer) run(ctx context.Context) {
	quiet := time.NewTimer(0)
	<-quiet.C
	var key *warmKey
	for {
		select {
		case <-ctx.Done():
			return
		case started := <-m.started:
			if key = cmp.Or(started, key); key != nil {
				quiet.Reset(warmAfter)
			}
		case <-quiet.C:
			m.fill(ctx, *key)
		}
	}
}

// want has warm sandboxes made for attempts like one that started; nil for one that
// cannot have any.
func (m *warmer) want(key *warmKey) {
	for {
		select {
		case m.started <- key:
			return
		default:
		}
		select {
		case earlier := <-m.started:
			key = cmp.Or(key, earlier)
		default:
		}
	}
}

// fill makes warm sandboxes until there are enough, or another attempt starts.
func (m *warmer) fill(ctx context.Context, key warmKey) {
	for ctx.Err() == nil && len(m.started) == 0 {
		place := m.places.begin(key)
		if place == nil {
			return
		}
		made, err := m.makeOne(ctx, key)
		m.places.finish(place, made)
		if err != nil {
			if ctx.Err() == nil {
				m.log.Warn("warm sandbox not made", "hint", "executions start without one", "err", err)
			}
			return
		}
		fault.Point("executor.warm")
	}
}

// makeOne makes a warm sandbox.
func (m *warmer) makeOne(ctx context.Context, key warmKey) (*warmSandbox, error) {
	asked := &compute.Execution{ScratchMiB: key.scratchMiB, ScratchMemory: key.scratchMemory}
	res, err := m.pool.takeFor(ctx, key.network, asked)
	if err != nil {
		return nil, err
	}
	spare := &m.supervisors.sandboxes
	process, err := m.supervisors.take(spare)
	if err != nil {
		res.close()
		return nil, err
	}
	defer context.AfterFunc(ctx, process.Close)()
	w := &warmSandbox{process: process, group: m.groups.Host.Group(m.groups.Prefix() + warmGroup + rand.Text()), res: res}
	res.early = true
	if err := m.warmUp(w, key); err != nil {
		w.close()
		return nil, err
	}
	m.supervisors.keep(spare)
	return w, nil
}

// warmUp has the supervisor make the sandbox.
func (m *warmer) warmUp(w *warmSandbox, key warmKey) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("make warm sandbox: %w", err)
	}
	defer null.Close()
	spec := &supervise.Spec{
		Group: w.group.Name(), MemoryMiB: key.memoryMiB, Pids: maxPids, JoinNetwork: w.res.network != nil,
	}
	m.specs.boxIn(spec, compute.Work{Execution: new(compute.Execution), Attempt: new(compute.Attempt)},
		&compute.Bundle{Code: "pass"}, w.res, "")
	volumes, err := m.volumes.binds(new(compute.Execution))
	if err != nil {
		return err
	}
	spec.Sandbox.Binds = append(spec.Sandbox.Binds, volumes...)
	if err := w.process.Warm(spec, null, w.res.files(null)); err != nil {
		return err
	}
	if mounts, err := m.volumes.describe(); err != nil || mounts != key.mounts {
		return errors.Join(errors.New("what is mounted at the volumes of all executions has changed"), err)
	}
	return nil
}

// uses reports whether a cgroup is that of a warm sandbox, which an attempt with a live supervisor has,
// or may have: its spec cannot be read.
func (m *warmer) uses(group string) bool {
	if !strings.HasPrefix(group, m.groups.Prefix()+warmGroup) {
		return false
	}
	keys, err := m.dirs.Stored()
	return err != nil || slices.ContainsFunc(keys, func(k live.Key) bool {
		spec, err := supervise.ReadSpec(m.dirs.Dir(k))
		return (err != nil || spec.Group == group) && m.dirs.Supervised(k.String())
	})
}
