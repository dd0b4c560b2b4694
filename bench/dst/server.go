package dst

import (
	"bytes"
	"io"
	"time"

	protocol "berth/attempt"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/scheduler"
)

// Times of the replicated log.
const (
	leaderLook   = 250 * time.Millisecond
	leaderLease  = time.Second // How long a leader without a majority continues.
	commitRetry  = 50 * time.Millisecond
	maxBatch     = 64   // The largest batch of entries that a replica applies.
	snapshotSpan = 400  // Maximum number of entries between two snapshots.
	entryFrames  = 256  // Maximum number of commands in one entry.
	snapshotGap  = 1000 // A replica this many entries behind gets a snapshot.
)

// entry is a log entry with its proposals.
type entry struct {
	data       []byte
	proposals  []*proposal
	term       uint64 // The term of its leader.
	replicated bool   // A follower has it too.
}

// server is a replica: the state machine and its durable log.
type server struct {
	*machine

	state    *fsm.FSM
	applied  uint64
	stored   uint64 // Durable entries, all committed.
	applying bool
	snapshot []byte // Durable.
	included uint64 // Entries in the snapshot.
	nextSnap uint64

	leadership
}

// leadership is a server's state while it believes that it leads.
type leadership struct {
	term     uint64 // 0 for none.
	ready    bool   // An entry of this term was applied.
	lost     time.Duration
	since    time.Duration
	queue    []*proposal
	flushing bool
	tail     []*entry // Appended but not committed.
	heard    []time.Duration
	losing   []bool // By machine: attempts of it are being given up.
	counter  *protocol.Watch
	packer   *scheduler.Packer
	packed   uint64 // Index of the last packed view.
	planning bool
	waking   bool
}

// load restores the state from the disk when a process starts.
func (s *server) load() {
	s.state, s.applied, s.applying, s.leadership = fsm.New(), 0, false, leadership{}
	if s.snapshot != nil {
		s.w.report.Restores++
		if err := s.state.Restore(io.NopCloser(bytes.NewReader(s.snapshot))); err != nil {
			s.w.violate("a replica cannot read its own snapshot: %v", err)
			return
		}
		s.applied = s.included
		if s.w.config.Bug == BugSkippedEntry && s.applied < s.stored {
			s.applied++
		}
	}
	s.scheduleApply()
}

// scheduleApply schedules the application of stored entries.
func (s *server) scheduleApply() {
	if s.applying || s.applied >= s.stored {
		return
	}
	s.applying = true
	wait := s.w.between(200*time.Microsecond, 20*time.Millisecond)
	if s.w.happens(0.02) {
		wait = s.w.between(20*time.Millisecond, 2*time.Second)
	}
	s.w.after(wait, s.guard(func() {
		s.applying = false
		s.advance(min(s.stored, s.applied+1+uint64(s.w.random.IntN(maxBatch))))
		s.scheduleApply()
	}))
}

// advance applies log entries as one batch.
func (s *server) advance(to uint64) {
	if to <= s.applied {
		return
	}
	batch := make([][]byte, 0, to-s.applied)
	for _, e := range s.w.log[s.applied:to] {
		batch = append(batch, e.data)
	}
	first := s.applied + 1
	s.applied = to
	s.publish(first, s.state.ApplyEntries(first, batch...))
}

// publish reports the state's results to all observers.
func (s *server) publish(first uint64, results [][]command.Result) {
	w := s.w
	for i, r := range results {
		index := first + uint64(i)
		if index > w.oracle.seen {
			w.oracle.observe(index, s.state.View(), w.log[index-1], r)
		}
	}
	w.oracle.compare(s)
	if s.applied >= s.nextSnap {
		s.storeSnapshot()
	}
	s.wakeAgent()
	if s.term != 0 {
		s.wake()
	}
}

// storeSnapshot stores a snapshot.
func (s *server) storeSnapshot() {
	var buffer bytes.Buffer
	if err := s.state.View().WriteSnapshot(&buffer); err != nil {
		s.w.violate("a snapshot cannot be written: %v", err)
	}
	s.snapshot, s.included = buffer.Bytes(), s.applied
	s.nextSnap = s.applied + 1 + uint64(s.w.random.IntN(snapshotSpan))
}

// majority reports whether a server and another one reach each other.
func (s *server) majority() bool {
	if !s.up {
		return false
	}
	for _, other := range s.w.servers {
		if other != s && other.up && s.w.connected(s.id, other.id) {
			return true
		}
	}
	return false
}

// watchLeaders makes leaders without a majority resign, and elects a new one.
func (w *world) watchLeaders() {
	w.after(leaderLook, w.watchLeaders)
	for _, s := range w.servers {
		if s.term == 0 || s == w.leader && s.majority() {
			s.lost = 0
			continue
		}
		if s.lost == 0 {
			s.lost = w.now
		}
		if w.now-s.lost >= leaderLease {
			s.resign()
		}
	}
	for _, s := range w.servers {
		if w.leader != nil && s.up && w.leader.up && w.connected(s.id, w.leader.id) {
			w.store(s)
		}
	}
	if w.leader != nil && w.leader.term == w.term && w.leader.majority() {
		w.vacant = 0
		return
	}
	if w.vacant == 0 {
		w.vacant = w.now + w.between(200*time.Millisecond, 2*time.Second)
	}
	if w.now >= w.vacant {
		w.elect()
	}
}

// store replicates the leader's log to a replica that it reaches.
func (w *world) store(s *server) {
	end := uint64(len(w.log))
	if s.stored == end {
		return
	}
	if from := w.leader; s.stored+snapshotGap < end && from.snapshot != nil && from.included > s.applied {
		s.snapshot, s.included, s.stored = from.snapshot, from.included, end
		s.load()
		return
	}
	s.stored = end
	s.scheduleApply()
}

// resign ends a server's term. It loses its uncommitted entries.
func (s *server) resign() {
	s.w.report.Dropped += len(s.tail) + len(s.queue)
	s.leadership = leadership{}
}

// elect makes a server that has all committed entries the leader.
func (w *world) elect() {
	var able []*server
	for _, s := range w.servers {
		if s.stored == uint64(len(w.log)) && s.majority() {
			able = append(able, s)
		}
	}
	if len(able) == 0 {
		return
	}
	w.lead(able[w.random.IntN(len(able))])
}

// lead begins the term of s. The previous leader's entries on another replica
// may or may not survive.
func (w *world) lead(s *server) {
	w.vacant = 0
	w.report.Elections++
	w.term += 1 + uint64(w.random.IntN(2))
	if old := w.leader; old != nil && old != s && len(old.tail) > 0 {
		survive := w.random.IntN(len(old.tail) + 1)
		for i, e := range old.tail {
			if i >= survive || !e.replicated {
				break
			}
			w.log = append(w.log, e)
		}
		old.tail = nil
	}
	if s.term != 0 {
		s.resign()
	}
	s.stored = uint64(len(w.log))
	w.leader = s
	s.leadership = leadership{
		term: w.term, since: w.now, heard: make([]time.Duration, len(w.machines)),
		losing:  make([]bool, len(w.machines)),
		counter: protocol.NewWatch(), packer: scheduler.NewPacker(),
	}
	s.advance(s.stored)
	s.append(nil) // The commit of its first entry shows that everything before it is applied.
}

// submit adds a command to the leader's next entry.
func (s *server) submit(p *proposal) {
	s.queue = append(s.queue, p)
	if s.flushing {
		return
	}
	s.flushing = true
	term := s.term
	s.w.after(s.w.between(100*time.Microsecond, 5*time.Millisecond), s.guard(func() {
		if s.term != term {
			return
		}
		s.flushing = false
		for len(s.queue) > 0 {
			n := min(len(s.queue), entryFrames)
			batch := s.queue[:n:n]
			s.queue = s.queue[n:]
			s.append(batch)
		}
	}))
}

// append appends an entry that begins with the leader's clock and term.
func (s *server) append(batch []*proposal) {
	w := s.w
	e := &entry{term: s.term, proposals: batch, replicated: s.majority() && w.happens(0.7)}
	e.data = w.encode(command.Clock{At: s.clock(), Term: s.term})
	for _, p := range batch {
		if w.config.Bug == BugStaleTerm {
			p.frame = w.encode(restamped(p.cmd, s.term))
		}
		e.data = append(e.data, p.frame...)
	}
	s.tail = append(s.tail, e)
	if w.config.Bug == BugEarlyAnswer {
		for _, p := range batch {
			if submit, ok := p.cmd.(command.Submit); ok {
				s.answer(p, 0, command.Result{Execution: submit.Execution.ID})
			}
		}
	}
	term := s.term
	w.after(w.fsync()+w.delay(s.id, s.id), s.guard(func() { s.commit(term) }))
}

// commit commits the appended entries of a leader with a majority.
func (s *server) commit(term uint64) {
	w := s.w
	switch {
	case s.term != term || len(s.tail) == 0:
		return
	case w.leader != s || !s.majority():
		w.after(commitRetry, s.guard(func() { s.commit(term) }))
		return
	}
	e := s.tail[0]
	s.tail = s.tail[1:]
	w.log = append(w.log, e)
	index := uint64(len(w.log))
	s.stored = index
	for _, other := range w.servers {
		if other != s && other.up && w.connected(s.id, other.id) {
			w.store(other)
		}
	}
	first := s.applied + 1
	s.applied = index
	results := s.state.ApplyEntries(first, e.data)
	s.publish(first, results)
	for i, p := range e.proposals {
		s.answer(p, index, results[0][i+1])
	}
	if !s.ready {
		s.ready = true
		s.lead()
	}
}

// answer returns a result to its proposer.
func (s *server) answer(p *proposal, index uint64, r command.Result) {
	s.w.send(s.id, p.from, func() { p.settle(index, r) })
}

// clock returns the time of a machine, with its small skew.
func (m *machine) clock() compute.Instant {
	return began.Add(m.w.now + m.skew)
}
