package meter

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/loop"
)

const (
	ahead      = 4                // A hold covers so many times the amount that is waited for,
	idleAfter  = 30 * time.Second // until its payer asks nothing for so long.
	sweepEvery = 15 * time.Second
	renewAfter = time.Minute // Holds that are used are asked for again.
	proposeFor = 10 * time.Second
	retryAfter = 200 * time.Millisecond
	lastFor    = 2 * time.Second // For what is left when Run is to end.
	maxRows    = 500             // Rows of usage in a batch, and as many of holds: together they fit into a command.

	// leaseFor is how long a hold admits requests after the meter asked for it. The state releases it 5 minutes
	// after it has applied that, by the cluster's time, which follows the clocks of machines by a
	// tenth at most (docs/adr/0001-clock-frame.md). So a node that is cut off stops first, also where
	// its clock is slow, and the rest of that time is for a jump of the cluster's time.
	leaseFor = 2 * time.Minute
)

// Config has the parts of the node that a Meter uses.
type Config struct {
	Node compute.NodeID
	// Propose changes the state. A refusal is an error with a code.
	Propose func(context.Context, command.Command) (command.Result, uint64, error)
	// Read returns a view that includes everything acknowledged before the call.
	Read func(context.Context) (*fsm.View, error)
	// At returns a local view once it includes an index.
	At  func(ctx context.Context, index uint64) (*fsm.View, error)
	Now func() time.Time
	// Uptime is a clock for leases: it counts while the machine sleeps. That of Now if nil.
	Uptime func() time.Duration
	Logger *slog.Logger
	// Metrics gets the metrics; nil for none.
	Metrics prometheus.Registerer
}

// Meter meters the requests of one node.
type Meter struct {
	cfg  Config
	kick chan struct{} // There is something for a batch.
	lost prometheus.Counter

	uncharged prometheus.Counter

	session, number uint64 // Only Run uses them.

	mu sync.Mutex

	accounts map[compute.Payer]*account
	usage    map[usageKey]*settled
	full     []*settled // Rows that hold no more.
}

// settled is usage that is not in a batch yet.
type settled struct {
	command.UsedTokens

	of      *account
	amount  compute.Credits // Reserved for its requests.
	waiting []chan struct{} // Closed once it is committed.
}

// account has the credits that this node has set aside for a payer.
type account struct {
	held     compute.Credits // As of the last batch.
	reserved compute.Credits // The part of held for requests whose usage is in no batch yet.
	queue    []*Reservation  // Requests that wait for more to be set aside.
	asked    *Reservation    // The first of queue, once a batch asks for it.
	usedAt   time.Time
	askedAt  time.Time // When a batch last asked for its hold.

	leased time.Duration // The uptime at which the batch was made that last got its hold.
}

type usageKey struct {
	payer  compute.Payer
	model  string
	prices compute.TokenPrices
}

// New returns a meter that Run operates.
func New(cfg Config) *Meter {
	cfg.Logger = cfg.Logger.With("part", "meter")
	if begun := cfg.Now(); cfg.Uptime == nil {
		cfg.Uptime = func() time.Duration { return cfg.Now().Sub(begun) }
	}
	m := &Meter{
		cfg: cfg, kick: make(chan struct{}, 1), accounts: make(map[compute.Payer]*account),
		usage: make(map[usageKey]*settled),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_inference_tokens_lost_total",
			Help: "Tokens of published models whose charge this node gave up; its log has the sums.",
		}),
		uncharged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_inference_credits_uncharged_total",
			Help: "Credits for tokens that were used through this node and that neither a hold nor free credits covered.",
		}),
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(m.lost, m.uncharged)
	}
	return m
}

// Reservation is the amount set aside for one request. One of its methods ends it; later
// calls do nothing.
type Reservation struct {
	meter  *Meter
	of     *account
	key    usageKey
	amount compute.Credits

	admitted chan struct{} // Closed once the amount is set aside, or refused.
	refusal  error
	over     bool
}

// Reserve waits until the highest cost of a request is set aside. It refuses a payer that
// cannot pay.
func (m *Meter) Reserve(
	ctx context.Context, payer compute.Payer, model *compute.Model, prompt, completion int64,
) (*Reservation, error) {
	r := &Reservation{
		meter: m, key: usageKey{payer, model.ID, model.Prices}, amount: model.Prices.Cost(prompt, completion).Up(),
		admitted: make(chan struct{}),
	}
	m.mu.Lock()
	a := m.accounts[payer]
	if a == nil {
		a = new(account)
		m.accounts[payer] = a
	}
	r.of, a.usedAt = a, m.cfg.Now()
	if len(a.queue) == 0 && m.covers(a, r.amount) {
		a.reserved += r.amount
		m.mu.Unlock()
		return r, nil
	}
	a.queue = append(a.queue, r)
	m.mu.Unlock()
	m.wake()
	select {
	case <-r.admitted:
		if r.refusal != nil {
			return nil, r.refusal
		}
		return r, nil
	case <-ctx.Done():
		m.forget(r)
		return nil, ctx.Err()
	}
}

// covers reports whether the hold of an account admits a request. Nothing needs no hold.
func (m *Meter) covers(a *account, amount compute.Credits) bool {
	return a.held-a.reserved >= amount && (amount == 0 || m.cfg.Uptime()-a.leased < leaseFor)
}

// forget ends the wait of a reservation that nobody waits for any more.
func (m *Meter) forget(r *Reservation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := r.of
	for i, other := range a.queue {
		if other == r {
			a.queue = append(a.queue[:i:i], a.queue[i+1:]...)
			return
		}
	}
	if r.refusal == nil { // It was admitted in this moment.
		r.over = true
		a.reserved -= r.amount
	}
}

// Cancel charges nothing.
func (r *Reservation) Cancel() {
	r.meter.mu.Lock()
	defer r.meter.mu.Unlock()
	if !r.over {
		r.over = true
		r.of.reserved -= r.amount
	}
}

// Settle charges for the tokens that were used, and returns once the charge is committed.
func (r *Reservation) Settle(ctx context.Context, prompt, completion int64) error {
	m := r.meter
	m.mu.Lock()
	if r.over {
		m.mu.Unlock()
		return nil
	}
	r.over = true
	r.of.usedAt = m.cfg.Now()
	row := m.usage[r.key]
	if row == nil || row.Prompt > compute.MaxTokens-prompt || row.Completion > compute.MaxTokens-completion {
		if row != nil {
			m.full = append(m.full, row)
		}
		row = &settled{of: r.of, UsedTokens: command.UsedTokens{Payer: r.key.payer, Model: r.key.model, Prices: r.key.prices}}
		m.usage[r.key] = row
	}
	row.Prompt += prompt
	row.Completion += completion
	row.Requests++
	row.amount += r.amount
	done := make(chan struct{})
	row.waiting = append(row.waiting, done)
	m.mu.Unlock()
	m.wake()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Meter) wake() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Run makes batches until ctx ends, and then until all usage is taken. These last batches, and
// one that is under way then, have lastFor together to be committed.
func (m *Meter) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		loop.Sleep(work, lastFor)
		cancel()
	})()
	m.release(work)
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for swept, ended := false, false; ; {
		select {
		case <-ctx.Done():
			ended = true
		case <-m.kick:
		case <-sweep.C:
			swept = true
		}
		b, more := m.take(swept)
		swept = swept && more // The holds that are left come with the next batch.
		if b != nil {
			if view := m.commit(work, b); view != nil {
				m.finish(b, view)
			} else {
				m.drop(b, work.Err())
			}
		}
		if ended && !more {
			return nil
		}
	}
}

// release gives back the credits that an earlier process of this node had set aside: the
// requests ended with it. The first batch of a session does that, so an empty one is made,
// and proposed until it is certain that it is counted.
func (m *Meter) release(ctx context.Context) {
	for began := false; ctx.Err() == nil; {
		if !began {
			view, err := m.cfg.Read(ctx)
			if err == nil && !view.HoldsTokens(m.cfg.Node) {
				return
			}
			began = err == nil
		}
		if began {
			_, err := m.propose(ctx, new(batch))
			switch {
			case err == nil:
				return
			case compute.CodeOf(err) == compute.CodeConflict: // Another process began a session meanwhile.
				m.session = 0
			case compute.CodeOf(err) == compute.CodeNotFound: // The node is removed, and so are its holds.
				m.session = 0
				return
			}
		}
		loop.Sleep(ctx, retryAfter)
	}
}

// takeUsage moves the usage that is to be charged to a batch, with what was reserved for it
// and the callers that wait for it. It returns its accounts, and whether some usage is left.
func (m *Meter) takeUsage(b *batch) (touched map[*account]bool, more bool) {
	touched = make(map[*account]bool)
	add := func(row *settled) {
		b.usage, b.waiting = append(b.usage, row.UsedTokens), append(b.waiting, row.waiting...)
		row.of.reserved -= row.amount
		row.of.held = max(row.of.held-row.amount, 0)
		touched[row.of] = true
	}
	n := min(len(m.full), maxRows)
	for _, row := range m.full[:n] {
		add(row)
	}
	m.full = m.full[n:]
	for key, row := range m.usage {
		if len(b.usage) == maxRows {
			break
		}
		add(row)
		delete(m.usage, key)
	}
	return touched, len(m.usage)+len(m.full) > 0
}

// take returns the next batch, nil if there is nothing to do. If not all fits, more is true,
// and another batch follows.
func (m *Meter) take(swept bool) (b *batch, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	b = &batch{begun: m.cfg.Uptime()}
	charged, more := m.takeUsage(b)
	for payer, a := range m.accounts {
		touched := charged[a]
		want := command.WantedHold{Payer: payer}
		switch {
		case len(b.holds) == maxRows:
			more = more || swept || len(a.queue) > 0
		case len(a.queue) > 0:
			a.asked = a.queue[0]
			for _, r := range a.queue {
				want.Most += r.amount
			}
			want.Least, want.Most = a.reserved+a.asked.amount, a.reserved+want.Most*ahead
			b.holds, touched, a.askedAt = append(b.holds, want), true, now
		case swept && a.reserved == 0 && now.Sub(a.usedAt) > idleAfter:
			if a.held == 0 {
				delete(m.accounts, payer)
				continue
			}
			b.holds, touched, a.held = append(b.holds, want), true, 0
		case swept && max(a.held, a.reserved) > 0 && now.Sub(a.askedAt) > renewAfter: // Or it runs out.
			want.Least, want.Most = a.reserved, max(a.reserved, a.held)
			b.holds, touched, a.askedAt = append(b.holds, want), true, now
		}
		if touched {
			b.touched = append(b.touched, payer)
		}
	}
	if more {
		m.wake()
	}
	if len(b.usage)+len(b.holds) == 0 {
		return nil, more
	}
	return b, more
}

// finish notifies the callers that wait for a committed batch, and admits the requests for
// which there is enough now. The first one that asked for more and got none is refused.
func (m *Meter) finish(b *batch, view *fsm.View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, done := range b.waiting {
		close(done)
	}
	for i := range b.holds {
		m.accounts[b.holds[i].Payer].leased = b.begun
	}
	for _, payer := range b.touched {
		a := m.accounts[payer]
		a.held = view.TokenHold(m.cfg.Node, payer)
		for len(a.queue) > 0 {
			first := a.queue[0]
			if m.covers(a, first.amount) {
				a.reserved += first.amount
			} else if first == a.asked && a.held-a.reserved < first.amount {
				first.refusal = refusalOf(view, payer, a.reserved+first.amount-a.held)
			} else {
				break // A batch asks for more, or once more where the last one took too long.
			}
			a.queue = a.queue[1:]
			close(first.admitted)
		}
		a.asked = nil
		if len(a.queue) > 0 {
			m.wake()
		}
	}
}

// refusalOf says why nothing more was set aside.
func refusalOf(view *fsm.View, payer compute.Payer, amount compute.Credits) error {
	message := "no more can be set aside for it now"
	if lacks := view.LacksTokens(payer, amount); lacks != nil {
		message = lacks.Message
	}
	return compute.Errorf(compute.CodeForbidden, "You exceeded your current quota: %s.",
		cmp.Or(message, "credits exhausted")).Named("insufficient_quota")
}
