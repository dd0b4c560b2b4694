package meter

import (
	"context"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/loop"
)

// batch is one command, with the payers and callers that wait for it.
type batch struct {
	usage   []command.UsedTokens
	holds   []command.WantedHold
	touched []compute.Payer
	waiting []chan struct{}
	begun   time.Duration // The uptime when it was made.
}

// commit has a batch committed, and returns a view that includes it; nil once ctx ends.
// The state refuses a batch for three reasons. A session that another process of this node
// has ended: the same batch begins a new one, unless an earlier answer was lost, because
// then it may be counted already. A node that is removed, and rows that are not valid:
// these never pass. All other errors may pass later.
func (m *Meter) commit(ctx context.Context, b *batch) *fsm.View {
	for unsure := false; ctx.Err() == nil; {
		view, err := m.propose(ctx, b)
		if err == nil {
			return view
		}
		if ctx.Err() != nil {
			return nil
		}
		switch compute.CodeOf(err) {
		case compute.CodeConflict:
			m.session = 0
			if unsure {
				m.drop(b, err)
			}
			unsure = false
		case compute.CodeNotFound, compute.CodeInvalid:
			m.session = 0
			m.drop(b, err)
			b.holds = nil
		default:
			unsure = true
		}
		if len(b.usage)+len(b.holds) == 0 {
			if view, err := m.cfg.Read(ctx); err == nil {
				return view
			}
		}
		loop.Sleep(ctx, retryAfter)
	}
	return nil
}

// drop gives the usage of a batch up.
func (m *Meter) drop(b *batch, err error) {
	for i := range b.usage {
		u := &b.usage[i]
		m.lost.Add(float64(u.Prompt + u.Completion))
		m.cfg.Logger.Error("usage of model lost", "org", u.Payer.Org, "model", u.Model, "count", u.Requests,
			"tokens", u.Prompt+u.Completion,
			"detail", "credits "+u.Prices.Cost(u.Prompt, u.Completion).Up().String(), "err", err)
	}
	b.usage = nil
}

// propose proposes a batch once. Its number stays until it is committed.
func (m *Meter) propose(ctx context.Context, b *batch) (*fsm.View, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeFor)
	defer cancel()
	if m.session == 0 {
		view, err := m.cfg.Read(ctx)
		if err != nil {
			return nil, err
		}
		last, _ := view.TokenBatch(m.cfg.Node)
		m.session, m.number = max(view.Index(), last+1), 0
	}
	result, index, err := m.cfg.Propose(ctx, command.SettleTokens{
		Node: m.cfg.Node, Session: m.session, Number: m.number + 1, Usage: b.usage, Holds: b.holds,
	})
	if err != nil {
		return nil, err
	}
	view, err := m.cfg.At(ctx, index)
	if err != nil {
		return nil, err // The same batch again: a repeat.
	}
	m.number++
	if result.Uncharged > 0 {
		m.uncharged.Add(float64(result.Uncharged) / float64(compute.Credit))
		m.cfg.Logger.Warn("usage of models not charged", "count", len(b.usage),
			"detail", "credits "+result.Uncharged.String())
	}
	return view, nil
}
