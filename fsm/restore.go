package fsm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"berth/compute"
)

// How a snapshot is read: one goroutine reads records and hashes the stream,
// some turn those that rest into what a shelf keeps, and one, the caller's,
// stores them in their order. What is made of each record depends on it alone,
// so neither the order nor the number of workers shows in the state.
const (
	batchBytes   = 256 << 10
	batchRecords = 2048
	workers      = 4 // Each has its turn with what a machine has of cores.
)

// batch is some records of one table, one behind the other.
type batch struct {
	table  int
	data   []byte
	ends   []int
	before []byte // The record before the first, of the same table.

	made made
	err  error
	done chan struct{} // Closed when made or err is set.
}

// records yields the records of b, each with the one before it.
func (b *batch) records(yield func(before, record []byte) bool) {
	before, at := b.before, 0
	for _, end := range b.ends {
		record := b.data[at:end:end]
		if !yield(before, record) {
			return
		}
		before, at = record, end
	}
}

// made is what workers make of a batch.
type made struct {
	sum    sum // Of those that rest.
	shelf  [][2][]byte
	hot    [][]byte // The others.
	places [][placeWidth]byte
	ends   [][endWidth]byte
	ages   []age
	seen   []ended
	counts counts
	totals map[compute.OrgID]totals
	books  []book
	room   []byte
}

// age is an op and its place in the order in which ops were remembered.
type age struct {
	seq uint64
	op  pair
}

// ended is what is checked between executions and their attempts, of an
// execution or of an attempt that ended.
type ended struct {
	id        compute.ExecutionID
	epoch     uint64
	movable   bool
	preemptAt compute.Instant
	parent    bool // A GPU selection.
}

// book is some lines of one ledger that follow one another.
type book struct {
	org              compute.OrgID
	lines            int // In chapters.
	granted, charged compute.Credits
	last             ledgerLine
}

// restoring is a state that is being read.
type restoring struct {
	*state

	tables int // How many there are.
	load   []func([]byte) error
	stop   chan struct{}

	table  int    // The current one.
	last   []byte // The key of the last row on its shelf.
	hot    [][]byte
	places [][placeWidth]byte
	ends   [][endWidth]byte
	ages   []age
	seen   []ended // Of all executions.
	next   int     // Into seen, while attempts are compared with them.
	books  map[compute.OrgID]book
}

// readTables reads all tables and returns how many records they had.
func (s *state) readTables(in *snapshotReader) (*restoring, uint64, error) {
	r := &restoring{state: s, load: s.loaders(), stop: make(chan struct{}), books: make(map[compute.OrgID]book)}
	r.tables = len(r.load)
	work, inOrder := make(chan *batch), make(chan *batch, 2*workers)
	var running sync.WaitGroup
	defer running.Wait()
	defer close(r.stop)
	var total uint64
	var readErr error
	running.Go(func() {
		defer close(work)
		defer close(inOrder)
		total, readErr = r.read(in, func(b *batch) bool {
			for _, to := range []chan<- *batch{inOrder, work} {
				select {
				case to <- b:
				case <-r.stop:
					return false
				}
			}
			return true
		})
	})
	for range workers {
		running.Go(func() {
			for b := range work {
				b.made, b.err = r.make(b)
				close(b.done)
			}
		})
	}
	for b := range inOrder {
		<-b.done
		if b.err == nil {
			b.err = r.store(b)
		}
		if b.err != nil {
			return nil, 0, fmt.Errorf("table %d: %w", b.table, b.err)
		}
	}
	if readErr != nil {
		return nil, 0, readErr
	}
	return r, total, r.turn(r.tables)
}

// read reads the tables and hands their records on in batches, until hand
// returns false.
func (r *restoring) read(in *snapshotReader, hand func(*batch) bool) (total uint64, err error) {
	for i := range r.tables {
		n, err := readTable(in, i, hand)
		if err != nil {
			return 0, fmt.Errorf("table %d: %w", i, err)
		}
		total += n
	}
	return total, nil
}

// readTable reads one table and returns how many records it has.
func readTable(in *snapshotReader, table int, hand func(*batch) bool) (n uint64, err error) {
	head, err := in.read(9)
	if err != nil {
		return 0, err
	}
	if n, err = tableSize(head, byte(table)); err != nil {
		return 0, err
	}
	b := newBatch(table, nil)
	for left := n; left > 0; left-- {
		at := len(b.data)
		if b.data, err = in.append(b.data); err != nil {
			return 0, err
		}
		b.ends = append(b.ends, len(b.data))
		last := b.data[at:]
		if left == 1 || !b.full(last) {
			continue
		}
		if !hand(b) {
			return 0, io.ErrUnexpectedEOF // Nobody wants the rest.
		}
		b = newBatch(table, last)
	}
	if len(b.ends) > 0 && !hand(b) {
		return 0, io.ErrUnexpectedEOF
	}
	return n, nil
}

func newBatch(table int, before []byte) *batch {
	return &batch{table: table, before: before, done: make(chan struct{}), data: make([]byte, 0, batchBytes+batchBytes/4)}
}

// full reports whether b may end with last: one of a ledger ends with a chapter.
func (b *batch) full(last []byte) bool {
	if len(b.data) < batchBytes && len(b.ends) < batchRecords {
		return false
	}
	if b.table != tableLedger || len(b.ends) >= 2*batchRecords {
		return true
	}
	l, _ := outlineLine(last)
	return l.seq%chapterLines == 0
}

// The tables of which most records rest, by their place in stored.
const (
	tableLedger     = 11
	tableExecutions = 12
	tableAttempts   = 13
	tableOps        = 15
)

// make makes of a batch what is stored.
func (r *restoring) make(b *batch) (m made, err error) {
	switch b.table {
	case tableLedger:
		return r.makeLedger(b)
	case tableExecutions:
		return r.makeExecutions(b)
	case tableAttempts:
		return r.makeAttempts(b)
	case tableOps:
		return r.makeOps(b)
	}
	b.records(func(_, record []byte) bool {
		m.hot = append(m.hot, record)
		return true
	})
	return m, nil
}

// rest adds the row of a record that rests; what hashOf hashes of it is counted.
func (m *made) rest(p *packer, key, record, counted []byte) {
	m.sum.add(sha256.Sum256(counted))
	m.room = p.pack(m.room[:0], key, record)
	m.shelf = append(m.shelf, [2][]byte{key, bytes.Clone(m.room)})
}

func (r *restoring) makeExecutions(b *batch) (m made, err error) {
	m.totals = make(map[compute.OrgID]totals)
	b.records(func(_, record []byte) bool {
		var e compute.Execution
		known := outlineExecution(record, &e) && int(e.Status) < compute.Statuses && int(e.Kind) < kinds
		if !known || !e.Status.Terminal() {
			m.hot = append(m.hot, record)
			m.seen = append(m.seen, ended{id: e.ID, epoch: e.Epoch, movable: movable(&e)})
			return true
		}
		if wrong := checkAlone(&e); wrong != nil {
			err = fmt.Errorf("execution %s (%s): %w", e.ID, e.Status, wrong)
			return false
		}
		m.rest(r.executions.resting.packer, executionBytes(e.ID), record, leanOf(record))
		m.places = append(m.places, [placeWidth]byte(placeBytes(placeOf(&e))))
		m.ends = append(m.ends, [endWidth]byte(endBytes(momentOf(e.FinishedAt, e.ID.UUID))))
		m.seen = append(m.seen, ended{
			id: e.ID, epoch: e.Epoch, movable: movable(&e), parent: e.Kind == compute.KindSelection,
		})
		m.counts.executions[e.Status][e.Kind]++
		t := m.totals[e.Org]
		t.add(&e, 1)
		m.totals[e.Org] = t
		return true
	})
	return m, err
}

func (r *restoring) makeAttempts(b *batch) (m made, err error) {
	b.records(func(_, record []byte) bool {
		a, ok := outlineAttempt(record)
		if !ok || !a.Ended {
			m.hot = append(m.hot, record)
			return true
		}
		if !a.Status.Terminal() {
			err = fmt.Errorf("attempt %d of %s ended as %s", a.Epoch, a.Execution, a.Status)
			return false
		}
		m.rest(r.attempts.resting.packer, lineBytes(line{a.Execution.UUID, a.Epoch}), record, record)
		m.seen = append(m.seen, ended{id: a.Execution, epoch: a.Epoch, preemptAt: a.PreemptAt})
		return true
	})
	return m, err
}

func (r *restoring) makeOps(b *batch) (m made, err error) {
	b.records(func(_, record []byte) bool {
		seq, k, ok := outlineOp(record)
		if !ok {
			m.hot = append(m.hot, record)
			return true
		}
		m.rest(r.ops.resting.packer, pairBytes(k), record, record)
		m.ages = append(m.ages, age{seq, k})
		return true
	})
	return m, nil
}

func (r *restoring) makeLedger(b *batch) (m made, err error) {
	var chapter [][]byte
	var before ledgerLine
	if b.before != nil {
		before, _ = outlineLine(b.before)
	}
	b.records(func(_, record []byte) bool {
		l, ok := outlineLine(record)
		if !ok {
			err = fmt.Errorf("%w: a line of a ledger without its hash", errSnapshot)
			return false
		}
		if l.org != before.org {
			before = ledgerLine{org: l.org}
		}
		if err = l.follows(&before, record); err != nil {
			return false
		}
		if len(m.books) == 0 || m.books[len(m.books)-1].org != l.org {
			m.books = append(m.books, book{org: l.org})
		}
		k := &m.books[len(m.books)-1]
		k.add(l)
		if l.seq%chapterLines == 1 {
			m.hot, chapter = append(m.hot, chapter...), nil
		}
		chapter = append(chapter, record)
		if len(chapter) == chapterLines && l.seq%chapterLines == 0 {
			m.close(&r.ledger, line{l.org.UUID, l.seq - chapterLines + 1}, chapter)
			k.lines += chapterLines
			chapter = nil
		}
		before = l
		return true
	})
	m.hot = append(m.hot, chapter...)
	return m, err
}

// close makes a chapter of lines whose chain is whole.
func (m *made) close(b *books, first line, lines [][]byte) {
	for _, text := range lines {
		m.sum.add(sha256.Sum256(text))
	}
	m.shelf = append(m.shelf, [2][]byte{lineBytes(first), b.chapter(lines, true)})
}

// store adds what was made of a batch, in the order of the snapshot.
func (r *restoring) store(b *batch) error {
	if err := r.turn(b.table); err != nil {
		return err
	}
	m := &b.made
	shelf, sum := r.shelfOf(b.table)
	for _, row := range m.shelf {
		if bytes.Compare(row[0], r.last) <= 0 && r.last != nil {
			return fmt.Errorf("%w: records are not in their order", errSnapshot)
		}
		r.last = row[0]
		shelf.load(row[0], row[1])
	}
	if sum != nil {
		sum.merge(&m.sum)
	}
	r.hot = append(r.hot, m.hot...)
	r.places, r.ends, r.ages = append(r.places, m.places...), append(r.ends, m.ends...), append(r.ages, m.ages...)
	r.counts.merge(&m.counts)
	for org, t := range m.totals { // Any order.
		known, _ := r.totals.get(org)
		known.merge(&t)
		r.totals.set(org, known)
	}
	for i := range m.books {
		r.ledger.lines += m.books[i].lines
		k := r.books[m.books[i].org]
		k.merge(&m.books[i])
		r.books[k.org] = k
	}
	if b.table == tableAttempts {
		return r.compare(m.seen)
	}
	r.seen = append(r.seen, m.seen...)
	return nil
}

// shelfOf returns the shelf and the sum of a table, nil for one that has none.
func (r *restoring) shelfOf(table int) (*shelf, *sum) {
	switch table {
	case tableLedger:
		return &r.ledger.closed, &r.ledger.sum
	case tableExecutions:
		return &r.executions.shelf, &r.executions.sum
	case tableAttempts:
		return &r.attempts.shelf, &r.attempts.sum
	case tableOps:
		return &r.ops.shelf, &r.ops.sum
	}
	return nil, nil
}

// turn ends the tables before table: their indexes are loaded, and what did
// not rest is stored as ever.
func (r *restoring) turn(table int) error {
	if table == r.table {
		return nil
	}
	if shelf, _ := r.shelfOf(r.table); shelf != nil {
		shelf.loaded()
	}
	r.loadIndexes()
	for _, record := range r.hot {
		if err := r.load[r.table](record); err != nil {
			return err
		}
	}
	r.table, r.last, r.hot = table, nil, nil
	return nil
}

func (r *restoring) loadIndexes() {
	var both sync.WaitGroup
	both.Go(func() {
		slices.SortFunc(r.places, func(a, b [placeWidth]byte) int { return bytes.Compare(a[:], b[:]) })
		for i := range r.places {
			r.history.shelf.load(r.places[i][:], nil)
		}
		r.history.shelf.loaded()
	})
	slices.SortFunc(r.ends, func(a, b [endWidth]byte) int { return bytes.Compare(a[:], b[:]) })
	for i := range r.ends {
		r.finished.shelf.load(r.ends[i][:], nil)
	}
	r.finished.shelf.loaded()
	slices.SortFunc(r.ages, func(a, b age) int { return cmp.Compare(a.seq, b.seq) })
	for _, a := range r.ages {
		r.opAges.shelf.load(ageBytes(a.seq), r.opAges.row(a.op))
	}
	r.opAges.shelf.loaded()
	both.Wait()
	r.places, r.ends, r.ages = nil, nil, nil
}

// compare checks attempts that ended against the executions, which have the
// same order.
func (r *restoring) compare(attempts []ended) error {
	for i := range attempts {
		a := &attempts[i]
		for r.next < len(r.seen) && byExecution(r.seen[r.next].id, a.id) < 0 {
			r.next++
		}
		if r.next == len(r.seen) || r.seen[r.next].id != a.id || a.epoch == 0 || a.epoch > r.seen[r.next].epoch {
			return fmt.Errorf("attempt %d of %s has no execution", a.epoch, a.id)
		}
		if !a.preemptAt.IsZero() && (!r.seen[r.next].movable || a.preemptAt > r.meta.Now) {
			return fmt.Errorf("attempt %d of %s was preempted, which it may not be", a.epoch, a.id)
		}
	}
	return nil
}

// check checks what must hold between records, as View.checkRecords does. What
// rests was checked while it was read.
func (r *restoring) check() error {
	var wrong []error
	for e := range r.executions.hot() {
		wrong = append(wrong, r.checkExecution(e), r.checkOrg(e.Org))
	}
	for i := range r.seen {
		if r.seen[i].parent {
			e, _ := r.executions.get(r.seen[i].id)
			wrong = append(wrong, r.checkExecution(e))
		}
	}
	for a := range r.attempts.hot() {
		e, ok := r.executions.get(a.Execution)
		if ok {
			wrong = append(wrong, r.checkExecution(e))
		}
		wrong = append(wrong, r.checkAttempt(a, e))
	}
	for org := range r.totals.all() {
		wrong = append(wrong, r.checkOrg(org))
	}
	for o := range r.orgs.values() {
		k := r.books[o.ID]
		wrong = append(wrong, r.checkAccount(o.ID, k.granted, k.charged, &k.last))
	}
	return errors.Join(append(wrong, r.checkHeld(), r.checkNodes(), r.checkPeople(),
		r.checkMix(), r.checkQuotas(), r.checkFormat(), r.checkBrake())...)
}

// add counts the next line.
func (k *book) add(l ledgerLine) {
	switch l.kind {
	case compute.LedgerGrant:
		k.granted += l.amount
	case compute.LedgerCharge:
		k.charged += l.amount
	case compute.LedgerHold, compute.LedgerRelease, compute.LedgerFork:
	}
	k.last = l
}

// merge counts what follows.
func (k *book) merge(next *book) {
	k.org, k.last = next.org, next.last
	k.granted += next.granted
	k.charged += next.charged
}
