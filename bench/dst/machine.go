package dst

import (
	"slices"
	"time"

	"berth/compute"
	"berth/node/executor/journal"
)

// machine is one host: a node's process, the supervisors beside it, and a disk.
type machine struct {
	w    *world
	id   int
	node compute.NodeID
	name string
	gpus []compute.GPU
	skew time.Duration // Offset of its wall clock.

	server *server // Nil without a replica.
	agent  agent

	up   bool
	run  int // The number of its process.
	boot int // The number of its boot.
	disk disk

	supervisors map[key]*supervisor // Live supervisors.
}

// key identifies an attempt.
type key struct {
	execution compute.ExecutionID
	epoch     uint64
}

// disk holds the data that outlives a process, and tracks which part of it outlives
// the machine.
type disk struct {
	attempts map[key]*directory
	order    []key // Attempts in order of arrival.
	outbox   map[key][]byte
	waiting  []key // Outbox entries in order of arrival.
}

// directory is the directory of one attempt.
type directory struct {
	journal  []byte
	synced   int  // Bytes of the journal that are durable.
	durable  bool // The directory entry itself is synced.
	reported bool // The state has the outcome.
	kept     bool // The report is synced.
}

// guard wraps fn so that it runs only while the process lives.
func (m *machine) guard(fn func()) func() {
	run := m.run
	return func() {
		if m.up && m.run == run {
			fn()
		}
	}
}

// alive returns a function that reports whether the current process still
// lives.
func (m *machine) alive() func() bool {
	run := m.run
	return func() bool { return m.up && m.run == run }
}

// start starts the node's process.
func (m *machine) start() {
	m.up = true
	m.run++
	if m.server != nil {
		m.server.load()
	}
	m.startAgent()
}

// crash kills the node's process. Supervisors go on.
func (m *machine) crash() {
	m.w.report.Crashes++
	m.up = false
}

// powerOff stops the machine. Part of the unsynced data is on the disk.
func (m *machine) powerOff() {
	m.crash()
	m.boot++
	for _, k := range m.disk.order {
		if s := m.supervisors[k]; s != nil {
			s.die()
		}
		d := m.disk.attempts[k]
		if d == nil {
			continue
		}
		if !d.durable && m.w.happens(0.5) {
			m.disk.remove(k)
			continue
		}
		d.durable = true
		d.reported = d.kept
		d.journal = d.journal[:d.synced+m.w.random.IntN(len(d.journal)-d.synced+1)]
		d.synced = len(d.journal)
	}
}

// remove deletes the directory of an attempt; order keeps its key.
func (d *disk) remove(k key) { delete(d.attempts, k) }

// drop removes an outcome from the outbox.
func (d *disk) drop(k key) {
	delete(d.outbox, k)
	d.waiting = slices.DeleteFunc(d.waiting, func(other key) bool { return other == k })
}

// write appends a line to the journal of an attempt.
func (d *directory) write(w *world, line []byte, err error) {
	if err != nil {
		w.violate("a line of a journal cannot be encoded: %v", err)
	}
	d.journal = append(d.journal, line...)
}

// read parses the journal.
func (d *directory) read() journal.State { return journal.Parse(d.journal) }
