package fsm

import "berth/compute"

// changeLog remembers which records of a table changed last. It is not part of
// the state: it makes reading faster, and is empty after a restore.
type changeLog[K any] struct {
	origin  *int // One for each life of the table.
	keep    int  // How many changes are remembered at least.
	changed []K  // In the order of change; views share the array.
	dropped uint64
}

func newChangeLog[K any](keep int) changeLog[K] { return changeLog[K]{origin: new(int), keep: keep} }

// note remembers a change and returns the number of all changes. Views have the
// front of the same array, which is never written again. When it is long, its
// end moves to a new one.
func (l *changeLog[K]) note(k K) uint64 {
	if len(l.changed) >= 2*l.keep {
		kept := l.changed[len(l.changed)-l.keep:]
		l.dropped += uint64(len(l.changed) - l.keep)
		l.changed = append(make([]K, 0, 2*l.keep), kept...)
	}
	l.changed = append(l.changed, k)
	return l.revision().Change
}

func (l *changeLog[K]) revision() compute.Revision {
	return compute.Revision{Origin: l.origin, Change: l.dropped + uint64(len(l.changed))}
}

// since returns the changes after a revision and the newest revision. It is not
// complete when the log does not go back that far, or to before a change.
func (l *changeLog[K]) since(r compute.Revision, before uint64) (changed []K, now compute.Revision, complete bool) {
	now = l.revision()
	if r.Origin != any(l.origin) || r.Change < max(l.dropped, before) || r.Change > now.Change {
		return nil, now, false
	}
	return l.changed[r.Change-l.dropped:], now, true
}
