package queue

import (
	"cmp"
	"math"
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// Queue is a copy of the queue of the newest view, by equivalence class. It must
// not be used by two goroutines at once.
type Queue struct {
	kinds    *capacity.Kinds
	revision compute.Revision
	members  map[compute.ExecutionID]*member
	levels   []*level // The highest priority first.
	quotas   map[compute.OrgID][]compute.Quota
	touched  []*class // Those with changes.
}

// New returns an empty Queue that numbers shapes by kinds.
func New(kinds *capacity.Kinds) *Queue {
	q := &Queue{kinds: kinds}
	q.clear()
	return q
}

func (q *Queue) clear() {
	q.members, q.quotas = map[compute.ExecutionID]*member{}, map[compute.OrgID][]compute.Quota{}
	q.levels, q.touched = nil, nil
}

// Sync brings q up to a view. It reads the changes since the last one, or
// the whole queue if the view does not know them.
func (q *Queue) Sync(v View) {
	changed, now, complete := v.QueueChanged(q.revision)
	q.revision = now
	if !complete {
		q.clear()
		q.readAll(v)
	} else {
		q.syncQuotas(v)
		for _, id := range changed {
			e, _ := v.Queued(id)
			q.set(v, id, e)
		}
	}
	for _, c := range q.touched {
		c.flush()
		if len(c.members) == 0 {
			q.dropClass(c)
		}
	}
	clear(q.touched)
	q.touched = q.touched[:0]
}

// readAll reads the whole queue.
func (q *Queue) readAll(v View) {
	for priority, orgs := v.Lines(math.MaxInt); len(orgs) > 0; priority, orgs = v.Lines(priority) {
		for _, org := range orgs {
			var after *compute.Execution
			for {
				read := v.Line(priority, org, after, mostRead)
				for _, e := range read {
					q.add(v, e)
				}
				if len(read) < mostRead {
					break
				}
				after = read[len(read)-1]
			}
		}
	}
}

// syncQuotas sorts the executions of an organization into other classes if it
// has quotas of other keys, tags or hardware profiles.
func (q *Queue) syncQuotas(v View) {
	for org, known := range q.quotas {
		if now := scopes(v.Quotas(org)); !slices.Equal(known, now) {
			delete(q.quotas, org)
			for _, level := range q.levels {
				for _, l := range level.lines {
					if l.org == org {
						q.sortAgain(v, l)
					}
				}
			}
		}
	}
}

// sortAgain sorts the executions of a line into classes.
func (q *Queue) sortAgain(v View, l *line) {
	var all []*compute.Execution
	for _, c := range l.classes {
		for _, m := range c.members {
			all = append(all, m.execution)
		}
	}
	for _, e := range all {
		q.remove(q.members[e.ID])
		q.add(v, e)
	}
}

// scopes returns quotas without limits.
func scopes(quotas []compute.Quota) []compute.Quota {
	for i, g := range quotas {
		quotas[i] = compute.Quota{Org: g.Org, Key: g.Key, Tag: g.Tag, Profile: g.Profile}
	}
	return quotas
}

// set brings one execution up to its record, nil when it is not queued.
func (q *Queue) set(v View, id compute.ExecutionID, e *compute.Execution) {
	m := q.members[id]
	switch {
	case e == nil && m == nil:
	case e == nil:
		q.remove(m)
	case m == nil:
		q.add(v, e)
	case m.execution == e:
	case m.index == e.SubmitIndex && q.inClass(v, m.class, e):
		m.execution = e
	default:
		q.remove(m)
		q.add(v, e)
	}
}

// inClass reports whether e belongs to c.
func (q *Queue) inClass(v View, c *class, e *compute.Execution) bool {
	return c.line.org == e.Org && c.line.level.priority == e.Priority && c.key == q.keyOf(v, e)
}

// add adds an execution.
func (q *Queue) add(v View, e *compute.Execution) {
	c := q.classOf(v, e)
	m := &member{index: e.SubmitIndex, execution: e, class: c}
	q.members[e.ID] = m
	c.added = append(c.added, m)
	q.touch(c)
}

// remove removes a member.
func (q *Queue) remove(m *member) {
	delete(q.members, m.execution.ID)
	m.class.lost = true
	q.touch(m.class)
	m.class = nil
}

func (q *Queue) touch(c *class) {
	if !c.touched {
		c.touched = true
		q.touched = append(q.touched, c)
	}
}

// keyOf returns the key of the class of e in its line.
func (q *Queue) keyOf(v View, e *compute.Execution) classKey {
	k := classKey{
		shape: q.kinds.Shape(&e.Request), gpus: e.Request.GPUs, held: e.Request.HeldMilliGPU(),
		end: e.EndsBy(0), grace: int64(e.StopGrace), reason: e.Reason, quotas: q.quotasOf(v, e),
	}
	if len(e.Avoid) > 0 {
		k.alone = e.ID
	}
	return k
}

// quotasOf returns a bit for each quota of the organization of e: whether e
// counts in it.
func (q *Queue) quotasOf(v View, e *compute.Execution) string {
	quotas, known := q.quotas[e.Org]
	if !known {
		quotas = scopes(v.Quotas(e.Org))
		q.quotas[e.Org] = quotas
	}
	bits := make([]byte, 0, 64)
	for i := range quotas {
		if i%8 == 0 {
			bits = append(bits, 0)
		}
		if quotas[i].AppliesTo(e) {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return string(bits)
}

// classOf returns the class of e, which it makes if there is none.
func (q *Queue) classOf(v View, e *compute.Execution) *class {
	l, key := q.lineOf(e), q.keyOf(v, e)
	c := l.byKey[key]
	if c == nil {
		c = &class{key: key, line: l, pos: -1}
		l.byKey[key] = c
		l.classes = append(l.classes, c)
	}
	return c
}

// lineOf returns the line of e, which it makes if there is none.
func (q *Queue) lineOf(e *compute.Execution) *line {
	at, found := q.levelAt(e.Priority)
	if !found {
		q.levels = slices.Insert(q.levels, at, &level{priority: e.Priority, byOrg: map[compute.OrgID]*line{}})
	}
	lines := q.levels[at]
	l := lines.byOrg[e.Org]
	if l == nil {
		l = &line{org: e.Org, level: lines, byKey: map[classKey]*class{}, pos: -1}
		lines.byOrg[e.Org] = l
		lines.lines = append(lines.lines, l)
	}
	return l
}

// levelAt returns where a priority is, or belongs, among the levels.
func (q *Queue) levelAt(priority int) (at int, found bool) {
	return slices.BinarySearchFunc(q.levels, priority, func(l *level, p int) int { return cmp.Compare(p, l.priority) })
}

// dropClass removes an empty class, with its line and level when they are empty.
func (q *Queue) dropClass(c *class) {
	l, lines := c.line, c.line.level
	delete(l.byKey, c.key)
	l.classes = slices.DeleteFunc(l.classes, func(d *class) bool { return d == c })
	if len(l.classes) > 0 {
		return
	}
	delete(lines.byOrg, l.org)
	lines.lines = slices.DeleteFunc(lines.lines, func(m *line) bool { return m == l })
	if len(lines.lines) == 0 {
		at, _ := q.levelAt(lines.priority)
		q.levels = slices.Delete(q.levels, at, at+1)
	}
	if !slices.ContainsFunc(q.levels, func(o *level) bool { return o.byOrg[l.org] != nil }) {
		delete(q.quotas, l.org)
	}
}
