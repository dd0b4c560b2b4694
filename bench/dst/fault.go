package dst

import (
	"time"

	protocol "berth/attempt"
	"berth/compute"
	"berth/fsm/command"
)

// Mean intervals between faults of the whole cluster.
const (
	processEvery    = 4 * time.Minute
	machineEvery    = 5 * time.Minute
	supervisorEvery = 5 * time.Minute
	isolateEvery    = 4 * time.Minute
	cutEvery        = 4 * time.Minute
	leaderEvery     = 4 * time.Minute
	drainEvery      = 10 * time.Minute
	groupEvery      = 15 * time.Minute
	degradeEvery    = 4 * time.Minute
)

// faults schedules every kind of fault repeatedly.
func (w *world) faults() {
	w.inject(processEvery, func(m *machine) {
		if m.up {
			m.crash()
			w.restartLater(m, w.between(100*time.Millisecond, time.Minute))
		}
	})
	w.inject(machineEvery, func(m *machine) {
		if m.up {
			m.powerOff()
			w.restartLater(m, w.between(5*time.Second, 3*time.Minute))
		}
	})
	w.inject(supervisorEvery, func(m *machine) { m.killSupervisor() })
	w.inject(isolateEvery, func(m *machine) {
		w.report.Partitions++
		w.net.isolated[m.id] = w.now + w.exponential(40*time.Second)
	})
	w.inject(groupEvery, func(*machine) { w.isolateGroup() })
	w.inject(degradeEvery, w.degrade)
	w.inject(cutEvery, func(m *machine) {
		w.report.Partitions++
		other := w.random.IntN(len(w.machines))
		w.net.cut[m.id][other] = w.now + w.exponential(time.Minute)
	})
	w.inject(leaderEvery, func(m *machine) {
		if s := m.server; s != nil && s != w.leader && s.majority() && s.stored == uint64(len(w.log)) {
			w.lead(s)
		}
	})
	w.inject(drainEvery, func(m *machine) {
		within := time.Duration(0)
		if w.happens(0.7) {
			within = w.between(time.Second, 2*time.Minute)
		}
		w.drain(m, true, within, func() {
			w.after(w.exponential(2*time.Minute), func() { w.drain(m, false, 0, func() {}) })
		})
	})
}

// isolateGroup isolates two machines of five at once, as a failing switch does.
func (w *world) isolateGroup() {
	w.report.Partitions++
	until := w.now + w.between(20*time.Second, 3*time.Minute)
	for _, i := range w.random.Perm(len(w.machines))[:len(w.machines)*2/5] {
		w.net.isolated[i] = until
	}
}

// degrade cuts a machine off in steps. Messages to it wait, as on a connection
// that retransmits. Soon nothing that it sends arrives, for longer. The answer
// to its last heartbeat often arrives just before the lease ends.
func (w *world) degrade(m *machine) {
	w.report.Partitions++
	held := w.now + w.between(5*time.Second, time.Minute)
	if w.happens(0.7) {
		held = w.now + protocol.Lease - w.between(0, heartbeatPeriod+time.Second)
	}
	w.net.held[m.id] = held
	w.after(heartbeatPeriod, func() { w.net.mute[m.id] = held + w.between(20*time.Second, 2*time.Minute) })
}

// inject applies a fault to random machines.
func (w *world) inject(every time.Duration, fault func(*machine)) {
	w.after(w.exponential(every), func() {
		if w.net.calm {
			return
		}
		fault(w.machines[w.random.IntN(len(w.machines))])
		w.inject(every, fault)
	})
}

// maybeKill sometimes kills a machine or its process at a critical moment that
// random faults would seldom hit.
func (w *world) maybeKill(m *machine) {
	if w.net.calm || !w.happens(0.03) {
		return
	}
	boot, soon := m.boot, 20*time.Millisecond
	if w.happens(0.5) {
		soon /= 10
	}
	w.after(w.between(0, soon), func() {
		switch {
		case m.boot != boot || w.net.calm:
		case w.happens(0.5):
			m.powerOff()
			w.restartLater(m, w.between(time.Second, 20*time.Second))
		case m.up:
			m.crash()
			w.restartLater(m, w.between(time.Millisecond, 5*time.Second))
		}
	})
}

// restartLater restarts a machine's process.
func (w *world) restartLater(m *machine, after time.Duration) {
	w.after(after, func() {
		if !m.up {
			m.start()
		}
	})
}

// killSupervisor kills a supervisor and its code.
func (m *machine) killSupervisor() {
	for _, k := range m.disk.order {
		if s := m.supervisors[k]; s != nil && m.w.happens(0.5) {
			m.w.report.Crashes++
			s.die()
			s.hangUp()
			return
		}
	}
}

// drain stops or resumes placement on a node. The executions of a drained node
// are stopped within a time, or never for 0. next waits for the answer, as an
// operator does. A drain whose first try is late must not arrive after the
// command that ends it.
func (w *world) drain(m *machine, drained bool, within time.Duration, next func()) {
	cmd := command.DrainNode{
		Op: command.Op{ID: compute.OpID{UUID: w.uuid()}}, Actor: command.Actor{Root: true},
		Node: m.node, Drained: drained, Within: within,
	}
	w.propose(outside, always, 0, cmd, func(bool, command.Result) { next() })
}

// heal ends all faults.
func (w *world) heal() {
	w.net.calm = true
	for _, m := range w.machines {
		if !m.up {
			m.start()
		}
	}
}
