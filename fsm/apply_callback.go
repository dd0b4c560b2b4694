package fsm

import (
	"cmp"
	"iter"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/store"
)

// dueKey is an undelivered callback by when its next try is due.
type dueKey struct {
	at compute.Instant
	numberKey
}

func byDueKey(a, b dueKey) int {
	return cmp.Or(cmp.Compare(a.at, b.at), byNumberKey(a.numberKey, b.numberKey))
}

// callbackKey returns where a callback is among all.
func callbackKey(c *compute.Callback) numberKey {
	return numberKey{c.Owner(), uint64(c.Number)}
}

// newUndelivered returns the empty index of the callbacks that still have to be sent.
func newUndelivered() store.Index[dueKey, compute.Callback] {
	return store.NewIndex(byDueKey,
		func(c *compute.Callback) dueKey { return dueKey{c.NextAt, callbackKey(c)} },
		func(c *compute.Callback) bool { return c.Pending() })
}

func (v *executionTables) putCallback(c *compute.Callback) {
	v.undelivered.Update(v.callbacks.Put(c), c)
}

func (v *executionTables) dropCallback(k numberKey) {
	v.undelivered.Update(v.callbacks.Drop(k), nil)
}

// CallbacksOf returns the callbacks of an execution in the order of its URLs.
func (v *executionTables) CallbacksOf(id compute.ExecutionID) []*compute.Callback {
	var out []*compute.Callback
	for k := range v.callbacks.From(numberKey{owner: id.UUID}) {
		if k.owner != id.UUID {
			break
		}
		if c, ok := v.callbacks.Get(k); ok {
			out = append(out, c)
		}
	}
	return out
}

// DueCallbacks yields the callbacks that are due at an instant, the longest due first.
func (v *executionTables) DueCallbacks(now compute.Instant) iter.Seq[*compute.Callback] {
	return func(yield func(*compute.Callback) bool) {
		for k := range v.undelivered.Keys(dueKey{}) {
			if k.at > now {
				return
			}
			if c, ok := v.callbacks.Get(k.numberKey); ok && !yield(c) {
				return
			}
		}
	}
}

// Callback returns the record of c in this view.
func (v *executionTables) Callback(c *compute.Callback) (*compute.Callback, bool) {
	return v.callbacks.Get(callbackKey(c))
}

// recordDeliveries records the outcomes of tries. A callback that is gone, or was
// delivered meanwhile, stays as it is.
func (s *execution) recordDeliveries(c command.RecordDeliveries) command.Result {
	kept := 0
	for _, d := range c.Deliveries {
		known, ok := s.view.callbacks.Get(numberKey{d.Owner(), uint64(d.Number)})
		if !ok || !known.Pending() {
			continue
		}
		now := *known
		now.Tries++
		now.LastAt, now.Code, now.Error = d.At, d.Code, compute.Clip(d.Error, compute.MaxDeliveryError)
		switch {
		case d.Delivered:
			now.DoneAt = max(s.view.meta.Now, 1)
		case d.NextAt.IsZero():
			now.Failed = true
		default:
			now.NextAt = d.NextAt
		}
		if s.view.putCallback(&now); !now.Pending() && !now.Org.IsZero() {
			s.view.dropCallback(callbackKey(&now)) // No execution's record lists it.
		}
		kept++
	}
	return command.Result{Count: kept}
}

// redeliver has callbacks of an execution sent again.
func (s *execution) redeliver(c command.RedeliverCallbacks) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if _, ok := s.visible(c.Actor, c.Execution); !ok {
		return refuse(compute.CodeNotFound, "execution_not_found", "execution not found")
	}
	n := 0
	for _, known := range s.view.CallbacksOf(c.Execution) {
		if c.Number != nil && *c.Number != known.Number || known.Alert != nil {
			continue // Reports about budgets are the owners'.
		}
		now := *known
		now.DoneAt, now.Failed, now.NextAt, now.Since = 0, false, s.view.meta.Now, s.view.meta.Now
		s.view.putCallback(&now)
		n++
	}
	if n == 0 {
		return refuse(compute.CodeNotFound, "callback_not_found",
			"the execution has no such callback: one is made for each URL when it ends")
	}
	return command.Result{Execution: c.Execution, Count: n}
}
