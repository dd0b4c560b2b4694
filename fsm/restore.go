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
	"berth/fsm/archive"
	"berth/fsm/ledger"
	"berth/fsm/partial"
	"berth/fsm/snapshot"
	"berth/fsm/store"
)

// A snapshot is read in parallel. One goroutine reads records and hashes the
// stream, workers pack the cold records, and the caller's goroutine stores the
// results in order. The result of each record depends on it alone, so neither the
// order nor the number of workers shows in the state.
const (
	batchBytes   = 512 << 10
	batchRecords = 4096
	workers      = 4 // Workers share the available cores.
)

// batch is a list of records of one table.
type batch struct {
	table  int
	data   []byte
	ends   []int
	before []byte // The line before the first, of a ledger.

	made made
	err  error
	done chan struct{} // Closed once made or err is set.
}

// records yields the records of b.
func (b *batch) records(yield func(record []byte) bool) {
	at := 0
	for _, end := range b.ends {
		if !yield(b.data[at:end:end]) {
			return
		}
		at = end
	}
}

// made is the result of a batch. It shares no memory with the batch.
type made struct {
	sum     store.Sum    // Sum of the hashes of the cold records.
	pages   []store.Page // The cold records.
	hot     [][]byte     // The other records.
	places  [][historyKeyWidth]byte
	ends    [][endKeyWidth]byte
	outputs [][endKeyWidth]byte
	ages    []age
	seen    []ended
	counts  counts
	totals  map[compute.OrgID]totals
	ledgers []ledgerTotals
}

// age is an op with its sequence number.
type age struct {
	seq uint64
	op  pair
}

// ended is the part of an execution, or of an ended attempt, that checks compare
// between them.
type ended struct {
	id        compute.ExecutionID
	epoch     uint64
	movable   bool
	preemptAt compute.Instant
	parent    bool // A GPU selection.
}

// ledgerTotals sums up consecutive lines of one ledger.
type ledgerTotals struct {
	org              compute.OrgID
	lines            int // In sealed blocks.
	granted, charged compute.Credits
	last             ledger.Line
}

// restoring is a state that is being restored.
type restoring struct {
	state *state

	tables int // Number of tables.
	load   []func([]byte) error
	stop   chan struct{}

	spare sync.Pool // Has *batch values for reuse.

	table   int // The current one.
	hot     [][]byte
	late    [][]byte // Executions that are not cold, until indexes exist.
	places  [][historyKeyWidth]byte
	ends    [][endKeyWidth]byte
	left    [][endKeyWidth]byte // The ends of executions with outputs.
	ages    []age
	seen    []ended // The parts of all executions.
	next    int     // The index in seen, while attempts are compared.
	ledgers map[compute.OrgID]ledgerTotals
	indexes sync.WaitGroup // Builds the indexes of executions while the next tables are read.
}

// readTables reads all tables.
func (s *state) readTables(in *snapshot.Reader) (*restoring, error) {
	r := &restoring{state: s, load: s.loaders(), stop: make(chan struct{}), ledgers: make(map[compute.OrgID]ledgerTotals)}
	r.tables = len(r.load)
	work, inOrder := make(chan *batch), make(chan *batch, 2*workers)
	var running sync.WaitGroup
	defer running.Wait()
	defer r.indexes.Wait()
	defer close(r.stop)
	var readErr error
	running.Go(func() {
		defer close(work)
		defer close(inOrder)
		readErr = r.read(in, func(b *batch) bool {
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
			w := r.newMaker()
			for b := range work {
				b.made, b.err = w.make(b)
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
			return nil, fmt.Errorf("table %d: %w", b.table, b.err)
		}
		b.made = made{}
		r.spare.Put(b)
	}
	if readErr != nil {
		return nil, readErr
	}
	if err := r.finishTables(r.tables); err != nil {
		return nil, err
	}
	return r, r.loadLate()
}

// read reads the tables and passes their records on in batches, until hand
// returns false.
func (r *restoring) read(in *snapshot.Reader, hand func(*batch) bool) error {
	for i := range r.tables {
		if i >= tableArchives && !in.More() {
			break // The rest are empty.
		}
		if err := r.readTable(in, i, hand); err != nil {
			return fmt.Errorf("table %d: %w", i, err)
		}
	}
	return nil
}

// readTable reads one table.
func (r *restoring) readTable(in *snapshot.Reader, table int, hand func(*batch) bool) error {
	n, err := in.Table(table)
	if err != nil {
		return err
	}
	b := r.newBatch(table, nil)
	for left := n; left > 0; left-- {
		record, err := in.Record()
		if err != nil {
			return err
		}
		b.data = append(b.data, record...)
		b.ends = append(b.ends, len(b.data))
		if left == 1 || !b.full(record) {
			continue
		}
		next := r.newBatch(table, record)
		if !hand(b) {
			return io.ErrUnexpectedEOF // The caller has stopped.
		}
		b = next
	}
	if len(b.ends) > 0 && !hand(b) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// newBatch returns an empty batch that follows the record before. It keeps no
// reference to before.
func (r *restoring) newBatch(table int, before []byte) *batch {
	b, _ := r.spare.Get().(*batch)
	if b == nil {
		b = &batch{data: make([]byte, 0, batchBytes+batchBytes/4), ends: make([]int, 0, batchRecords)}
	}
	*b = batch{table: table, data: b.data[:0], ends: b.ends[:0], before: b.before[:0], done: make(chan struct{})}
	if table == tableLedger {
		b.before = append(b.before, before...)
	}
	return b
}

// full reports whether b may end with last. A batch of a ledger ends with a sealed
// block.
func (b *batch) full(last []byte) bool {
	if len(b.data) < batchBytes && len(b.ends) < batchRecords {
		return false
	}
	if b.table != tableLedger || len(b.ends) >= 2*batchRecords {
		return true
	}
	l, _ := ledger.ParseLine(last)
	return l.Seq%ledger.BlockLines == 0
}

// The tables whose records are mostly cold, by their index in stored.
const (
	tableLedger     = 11
	tableExecutions = 12
	tableAttempts   = 13
	tableOps        = 15
	tableArchives   = 21
)

// maker processes batches, one after the other.
type maker struct {
	restoring *restoring

	pages   map[int]*store.Builder // By table.
	buffers ledger.Buffers
	lines   [][]byte
	packed  []byte
	lean    []byte
	key     []byte
	partial compute.Execution
}

func (r *restoring) newMaker() *maker {
	w := &maker{restoring: r, pages: make(map[int]*store.Builder)}
	for _, table := range []int{tableLedger, tableExecutions, tableAttempts, tableOps} {
		b := r.packedTable(table).Builder()
		w.pages[table] = &b
	}
	return w
}

// make processes a batch.
func (w *maker) make(b *batch) (m made, err error) {
	switch b.table {
	case tableLedger:
		err = w.makeLedger(b, &m)
	case tableExecutions:
		err = w.makeExecutions(b, &m)
	case tableAttempts:
		err = w.makeAttempts(b, &m)
	case tableOps:
		w.makeOps(b, &m)
	default:
		b.records(func(record []byte) bool {
			m.keep(record)
			return true
		})
	}
	if pages := w.pages[b.table]; pages != nil {
		var ordered bool
		if m.pages, ordered = pages.Pages(); !ordered && err == nil {
			err = errOrder
		}
	}
	return m, err
}

// errOrder is returned for records that are not sorted by key.
var errOrder = fmt.Errorf("%w: records are not in their order", snapshot.ErrDamaged)

// keep leaves a record to the loader of its table.
func (m *made) keep(record []byte) { m.hot = append(m.hot, bytes.Clone(record)) }

// pack adds a cold record at w.key. Counted is the part of it that is hashed.
func (w *maker) pack(m *made, b *batch, p packs, record, counted []byte) {
	m.sum.Add(sha256.Sum256(counted))
	w.packed = p.Pack(w.packed[:0], w.key, record)
	w.pages[b.table].Add(w.key, w.packed)
}

func (w *maker) makeExecutions(b *batch, m *made) (err error) {
	m.totals = make(map[compute.OrgID]totals)
	e := &w.partial
	b.records(func(record []byte) bool {
		ofForm := partial.Execution(record, e)
		if !ofForm {
			if err = store.DecodeRecord(record, e); err != nil {
				return false
			}
		}
		known := int(e.Status) < compute.Statuses && int(e.Kind) < kinds
		if wrong := checkAlone(e); known && wrong != nil {
			err = fmt.Errorf("execution %s (%s): %w", e.ID, e.Status, wrong)
			return false
		}
		if !ofForm || !known || !e.Status.Terminal() {
			m.keep(record)
			m.seen = append(m.seen, ended{
				id: e.ID, epoch: e.Epoch, movable: movable(e),
				parent: e.Kind == compute.KindSelection && e.Status.Terminal(), // It is cold once it is stored.
			})
			return true
		}
		w.lean = partial.AppendLean(w.lean[:0], record)
		w.key = append(w.key[:0], executionBytes(e.ID)...)
		w.pack(m, b, w.restoring.state.view.executions, record, w.lean)
		m.places = append(m.places, [historyKeyWidth]byte(historyKeyBytes(archive.PlaceOf(e))))
		end := [endKeyWidth]byte(endKeyBytes(timeKeyOf(e.FinishedAt, e.ID.UUID)))
		m.ends = append(m.ends, end)
		if leftOutputs(e) {
			m.outputs = append(m.outputs, end)
		}
		m.seen = append(m.seen, ended{
			id: e.ID, epoch: e.Epoch, movable: movable(e), parent: e.Kind == compute.KindSelection,
		})
		m.counts.executions[e.Status][e.Kind]++
		t := m.totals[e.Org]
		t.add(e, 1)
		m.totals[e.Org] = t
		return true
	})
	return err
}

func (w *maker) makeAttempts(b *batch, m *made) (err error) {
	b.records(func(record []byte) bool {
		a, ok := partial.Attempt(record)
		if !ok || !a.Ended {
			m.keep(record)
			return true
		}
		if !a.Status.Terminal() {
			err = fmt.Errorf("attempt %d of %s ended as %s", a.Epoch, a.Execution, a.Status)
			return false
		}
		w.key = append(w.key[:0], numberKeyBytes(numberKey{a.Execution.UUID, a.Epoch})...)
		w.pack(m, b, w.restoring.state.view.attempts, record, record)
		m.seen = append(m.seen, ended{id: a.Execution, epoch: a.Epoch, preemptAt: a.PreemptAt})
		return true
	})
	return err
}

func (w *maker) makeOps(b *batch, m *made) {
	b.records(func(record []byte) bool {
		seq, k, ok := partialOp(record)
		if !ok {
			m.keep(record)
			return true
		}
		w.key = append(w.key[:0], pairBytes(k)...)
		w.pack(m, b, w.restoring.state.view.ops, record, record)
		m.ages = append(m.ages, age{seq, k})
		return true
	})
}

func (w *maker) makeLedger(b *batch, m *made) (err error) {
	var before ledger.Line
	if len(b.before) > 0 {
		before, _ = ledger.ParseLine(b.before)
	}
	block := w.lines[:0]
	b.records(func(record []byte) bool {
		l, ok := ledger.ParseLine(record)
		if !ok {
			err = fmt.Errorf("%w: a line of a ledger that is none", snapshot.ErrDamaged)
			return false
		}
		if l.Org != before.Org {
			before = ledger.Line{Org: l.Org}
		}
		if err = l.Follows(&before, record); err != nil {
			return false
		}
		if len(m.ledgers) == 0 || m.ledgers[len(m.ledgers)-1].org != l.Org {
			m.ledgers = append(m.ledgers, ledgerTotals{org: l.Org})
		}
		k := &m.ledgers[len(m.ledgers)-1]
		k.add(l)
		if l.Seq%ledger.BlockLines == 1 {
			block = m.keepAll(block)
		}
		block = append(block, record)
		if len(block) == ledger.BlockLines && l.Seq%ledger.BlockLines == 0 {
			w.close(m, l.Org, l.Seq-ledger.BlockLines+1, block)
			k.lines += ledger.BlockLines
			block = block[:0]
		}
		before = l
		return true
	})
	w.lines = m.keepAll(block)
	return err
}

// keepAll leaves lines to the loader, and returns the emptied slice.
func (m *made) keepAll(lines [][]byte) [][]byte {
	for _, record := range lines {
		m.keep(record)
	}
	return lines[:0]
}

// close seals lines whose chain is intact.
func (w *maker) close(m *made, org compute.OrgID, first uint64, lines [][]byte) {
	for _, text := range lines {
		m.sum.Add(sha256.Sum256(text))
	}
	w.key, w.packed = w.restoring.state.view.ledger.AppendBlock(w.key[:0], w.packed[:0], &w.buffers, org, first, lines)
	w.pages[tableLedger].Add(w.key, w.packed)
}

// store adds the result of a batch, in the order of the snapshot.
func (r *restoring) store(b *batch) error {
	if err := r.finishTables(b.table); err != nil {
		return err
	}
	m := &b.made
	if len(m.pages) > 0 && !r.packedTable(b.table).Load(m.pages, &m.sum) {
		return errOrder
	}
	r.hot = append(r.hot, m.hot...)
	r.places, r.ends, r.ages = append(r.places, m.places...), append(r.ends, m.ends...), append(r.ages, m.ages...)
	r.left = append(r.left, m.outputs...)
	r.state.view.counts.merge(&m.counts)
	for org, t := range m.totals { // Any order.
		known, _ := r.state.view.totals.Get(org)
		known.merge(&t)
		r.state.view.totals.Set(org, known)
	}
	for i := range m.ledgers {
		r.state.view.ledger.AddSealed(m.ledgers[i].lines)
		k := r.ledgers[m.ledgers[i].org]
		k.merge(&m.ledgers[i])
		r.ledgers[k.org] = k
	}
	if b.table == tableAttempts {
		return r.compare(m.seen)
	}
	r.seen = append(r.seen, m.seen...)
	return nil
}

// packs is a table with cold records.
type packs interface {
	Pack(dst, key, encoded []byte) []byte
}

// loads is a table to which pages are added.
type loads interface {
	Builder() store.Builder
	Load(pages []store.Page, sum *store.Sum) bool
}

// packedTable returns a table to which pages are added, nil for any other table.
func (r *restoring) packedTable(table int) loads {
	switch table {
	case tableLedger:
		return &r.state.view.ledger
	case tableExecutions:
		return r.state.view.executions
	case tableAttempts:
		return r.state.view.attempts
	case tableOps:
		return r.state.view.ops
	}
	return nil
}

// finishTables finishes the tables before table: it builds their indexes and loads
// the records that are not cold. The indexes of executions take long and are
// needed at the end only, so they are built in the background.
func (r *restoring) finishTables(table int) error {
	if table == r.table {
		return nil
	}
	switch {
	case r.table == tableExecutions:
		places, ends, left := r.places, r.ends, r.left
		r.places, r.ends, r.left = nil, nil, nil
		r.indexes.Go(func() { r.loadPlaces(places) })
		r.indexes.Go(func() { loadEnds(r.state.view.finished, ends) })
		r.indexes.Go(func() { loadEnds(r.state.view.outputs, left) })
		r.late, r.hot = r.hot, nil
	case len(r.ages) > 0:
		r.loadAges()
	}
	if err := r.loadHot(r.table, r.hot); err != nil {
		return err
	}
	r.table, r.hot = table, nil
	return nil
}

func (r *restoring) loadHot(table int, records [][]byte) error {
	for _, record := range records {
		if err := r.load[table](record); err != nil {
			return err
		}
	}
	return nil
}

// loadLate loads the records that waited for the indexes of executions.
func (r *restoring) loadLate() error {
	r.indexes.Wait()
	if err := r.loadHot(tableExecutions, r.late); err != nil {
		return fmt.Errorf("table %d: %w", tableExecutions, err)
	}
	return nil
}

func (r *restoring) loadPlaces(places [][historyKeyWidth]byte) {
	slices.SortFunc(places, func(a, b [historyKeyWidth]byte) int { return bytes.Compare(a[:], b[:]) })
	r.state.view.history.Load(func(yield func([]byte) bool) {
		for i := 0; i < len(places) && yield(places[i][:]); i++ {
		}
	})
}

func loadEnds(x store.PackedIndex[timeKey, compute.Execution], ends [][endKeyWidth]byte) {
	slices.SortFunc(ends, func(a, b [endKeyWidth]byte) int { return bytes.Compare(a[:], b[:]) })
	x.Load(func(yield func([]byte) bool) {
		for i := 0; i < len(ends) && yield(ends[i][:]); i++ {
		}
	})
}

func (r *restoring) loadAges() {
	slices.SortFunc(r.ages, func(a, b age) int { return cmp.Compare(a.seq, b.seq) })
	b := store.NewBuilder(ageWidth, false)
	for _, a := range r.ages {
		b.Add(ageBytes(a.seq), r.state.view.opAges.row(a.op))
	}
	pages, _ := b.Pages()
	r.state.view.opAges.rows.Load(pages)
	r.ages = nil
}

// compare checks ended attempts against executions, which have the same order.
func (r *restoring) compare(attempts []ended) error {
	for i := range attempts {
		a := &attempts[i]
		for r.next < len(r.seen) && byExecution(r.seen[r.next].id, a.id) < 0 {
			r.next++
		}
		if r.next == len(r.seen) || r.seen[r.next].id != a.id || a.epoch == 0 || a.epoch > r.seen[r.next].epoch {
			return fmt.Errorf("attempt %d of %s has no execution", a.epoch, a.id)
		}
		if !a.preemptAt.IsZero() && (!r.seen[r.next].movable || a.preemptAt > r.state.view.meta.Now) {
			return fmt.Errorf("attempt %d of %s was preempted, which it may not be", a.epoch, a.id)
		}
	}
	return nil
}

// check checks the invariants between records, as checker.checkRecords does. Cold
// records were checked while they were read.
func (r *restoring) check() error {
	var wrong []error
	for e := range r.state.view.executions.Hot() {
		wrong = append(wrong, checker{r.state.view}.checkExecution(e), checker{r.state.view}.checkOrg(e.Org))
	}
	for i := range r.seen {
		if r.seen[i].parent {
			e, _ := r.state.view.executions.Get(r.seen[i].id)
			wrong = append(wrong, checker{r.state.view}.checkExecution(e))
		}
	}
	for a := range r.state.view.attempts.Hot() {
		e, ok := r.state.view.executions.Get(a.Execution)
		if ok {
			wrong = append(wrong, checker{r.state.view}.checkExecution(e))
		}
		wrong = append(wrong, checker{r.state.view}.checkAttempt(a, e))
	}
	for org := range r.state.view.totals.All() {
		wrong = append(wrong, checker{r.state.view}.checkOrg(org))
	}
	for o := range r.state.view.orgs.Values() {
		k := r.ledgers[o.ID]
		wrong = append(wrong, checker{r.state.view}.checkAccount(o.ID, k.granted, k.charged, &k.last))
	}
	c := checker{r.state.view}
	return errors.Join(append(wrong, c.checkHeld(), c.checkNodes(), c.checkPeople(), c.checkMix(), c.checkQuotas(),
		c.checkFormat(), c.checkBrake(), c.checkArchives(), c.checkUploads(), c.checkBudgets(), c.checkAudit(),
		c.checkModels())...)
}

// add counts the next line.
func (k *ledgerTotals) add(l ledger.Line) {
	switch l.Kind {
	case compute.LedgerGrant:
		k.granted += l.Amount
	case compute.LedgerCharge:
		k.charged += l.Amount
	case compute.LedgerHold, compute.LedgerRelease, compute.LedgerFork:
	}
	k.last = l
}

// merge adds the totals of the lines that follow.
func (k *ledgerTotals) merge(next *ledgerTotals) {
	k.org, k.last = next.org, next.last
	k.granted += next.granted
	k.charged += next.charged
}
