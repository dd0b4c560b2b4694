package supervise

import (
	"fmt"
	"os"
	"time"

	"berth/boottime"
)

// While the leader is reached it stops unpaid code itself, before the end of its credits.
const (
	decides = 15 * time.Second // So long after a contact it is the leader that decides.
	asks    = time.Second      // The pause after which it is looked whether there was another.
)

// payUntil records when the credits of the attempt end, 0 for no known end.
func (s *supervisor) payUntil(at time.Duration) {
	s.paid = at
	if at == 0 {
		return // The timer may be set: its end is ignored.
	}
	if err := s.unpaid.set(at); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// endUnpaid stops code whose credits have ended, unless the leader is there: it may have set more
// of them aside, of which the node has not heard yet.
func (s *supervisor) endUnpaid() {
	now := boottime.Now()
	switch {
	case s.paid == 0 || s.cause != causeNone:
	case now < s.paid:
		s.payUntil(s.paid)
	case now-s.reached < decides:
		if err := s.unpaid.set(now + asks); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	default:
		s.note("credits ended, and the cluster is not reached")
		s.stop(causeUnpaid)
	}
}
