package callback

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"berth/compute"
	"berth/compute/address"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/loop"
)

// Limits of sending.
const (
	connectTimeout = 5 * time.Second
	totalTimeout   = 15 * time.Second
	maxAnswer      = 64 << 10 // Bytes of an answer, which is read and dropped.
	inFlight       = 64       // Tries at a time,
	hostInFlight   = 4        // and of these to one host, of one organization.
	period         = time.Second
	maxBatch       = 256 // Results in one command.

	firstRetry = 5 * time.Second
	lastRetry  = time.Hour

	failuresToOpen = 5 // In a row; then a host is left alone for openFor.
	openFor        = 30 * time.Second
	forgetAfter    = 10 * time.Minute // Without a failure.
)

// Config has the settings of a Sender.
type Config struct {
	View    func() *fsm.View
	Changed func(index uint64) <-chan struct{}
	Propose func(ctx context.Context, cmd command.Command) (command.Result, uint64, error)
	// Wait returns once View has what was committed at an index.
	Wait func(ctx context.Context, index uint64) error
	// Body returns the body of a callback. It reports false if its execution is
	// gone.
	Body func(view *fsm.View, c *compute.Callback) ([]byte, bool)
	// Secret returns the value of a secret that the user of an execution keeps.
	Secret func(view *fsm.View, id compute.ExecutionID, name string) (string, error)
	// Signing returns the secrets that sign the callbacks of an organization, none if
	// they are not signed.
	Signing  func(view *fsm.View, org compute.OrgID, at compute.Instant) ([]string, error)
	Allow    []netip.Prefix // That callbacks may go to although they are not public.
	CAs      *x509.CertPool // Nil for those of the machine.
	Resolver *net.Resolver  // Nil for the machine's.
	Now      func() time.Time
	Agent    string // The User-Agent.
	Logger   *slog.Logger
	// Registerer gets the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Sender sends callbacks while its node leads.
type Sender struct {
	cfg    Config
	client *http.Client
	tries  *prometheus.CounterVec

	mu    sync.Mutex
	busy  map[key]compute.OrgID // In flight, or sent and not yet recorded.
	orgs  map[compute.OrgID]int // Busy callbacks of each organization.
	hosts map[place]*host
	swept time.Time // When hosts that failed long ago were forgotten.

	owners map[key]compute.OrgID // Owners of callbacks that are due. Only Lead's goroutine uses it.
	done   chan compute.Delivery
	left   chan struct{} // Receives when a try has ended.
}

// key names a callback.
type key struct {
	owner  compute.UUID
	number int
}

// place is a host and port to which callbacks of an organization go. Others may use the
// same host, and are not delayed by the answers that this one gets.
type place struct {
	org  compute.OrgID
	host string
}

// host is the state of the receiver at a place.
type host struct {
	place
	busy     int
	failures int // In a row.
	openTo   time.Time
	failedAt time.Time
}

// New returns a Sender.
func New(cfg Config) *Sender {
	g := &guard{deny: address.Special(), allow: cfg.Allow}
	dialer := &net.Dialer{Timeout: connectTimeout, Control: g.control, Resolver: cfg.Resolver}
	s := &Sender{
		cfg: cfg,
		client: &http.Client{
			Timeout:       totalTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				DialContext: dialer.DialContext, TLSHandshakeTimeout: connectTimeout,
				TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.CAs},
				MaxIdleConnsPerHost: 1, MaxIdleConns: inFlight, IdleConnTimeout: time.Minute,
				MaxResponseHeaderBytes: maxAnswer, DisableCompression: true, ForceAttemptHTTP2: true,
			},
		},
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_callback_tries_total",
			Help: "Tries to send callbacks, by result: delivered, failed or given_up.",
		}, []string{"result"}),
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(s.tries)
	}
	return s
}

// Lead sends callbacks until ctx, the term, ends.
func (s *Sender) Lead(ctx context.Context, term uint64) error {
	s.reset()
	s.done = make(chan compute.Delivery, inFlight)
	s.left = make(chan struct{}, 1)
	var tries, records sync.WaitGroup
	records.Go(func() { s.record(ctx, term) })
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for ctx.Err() == nil {
		view := s.cfg.View()
		changed := s.cfg.Changed(view.Index())
		if s.startDue(ctx, view, &tries) {
			changed = nil // The next try can start once another one has ended.
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-s.left:
		case <-ticker.C: // A retry is due, or a host may be tried again.
		}
	}
	tries.Wait()
	close(s.done)
	records.Wait()
	s.client.CloseIdleConnections()
	return nil
}

// reset forgets the tries and the hosts of an earlier term.
func (s *Sender) reset() {
	s.busy, s.orgs, s.hosts = map[key]compute.OrgID{}, map[compute.OrgID]int{}, map[place]*host{}
	s.owners = map[key]compute.OrgID{}
}

// startDue starts the tries that are due, and reports whether some of them have to
// wait for others.
func (s *Sender) startDue(ctx context.Context, view *fsm.View, tries *sync.WaitGroup) (waits bool) {
	if view.Format() < format.Deliver {
		return false
	}
	now := s.cfg.Now()
	for c := range view.DueCallbacks(compute.InstantOf(now)) {
		where, started, full := s.take(c, s.owner(view, c), now)
		if full {
			return true
		}
		if !started {
			waits = true
			continue
		}
		// A try of it may have been recorded since view, and have given back its place.
		if newest, ok := s.cfg.View().Callback(c); !ok || newest.Tries != c.Tries {
			s.giveBack(c, where)
			continue
		}
		tries.Go(func() { s.try(ctx, view, c, where) })
	}
	return waits
}

// orgOf returns the organization of the execution or budget that c is about; zero if the
// execution is gone.
func orgOf(view *fsm.View, c *compute.Callback) compute.OrgID {
	if !c.Org.IsZero() {
		return c.Org
	}
	if e, ok := view.AnyExecution(c.Execution); ok {
		return e.Org
	}
	return compute.OrgID{}
}

// maxOwners bounds owners: records are decoded again from time to time.
const maxOwners = 4096

// owner is orgOf, from memory for a callback that was due before.
func (s *Sender) owner(view *fsm.View, c *compute.Callback) compute.OrgID {
	k := key{c.Owner(), c.Number}
	org, known := s.owners[k]
	if known {
		return org
	}
	if len(s.owners) >= maxOwners {
		clear(s.owners)
	}
	org = orgOf(view, c)
	s.owners[k] = org
	return org
}

// take reserves a place for a try of a callback of org. It reports full when no other try
// can start.
//
// An organization takes a place only while it holds fewer than are free. So one alone may
// have half of them, the next one half of the rest, and one that has none may take the
// last.
func (s *Sender) take(c *compute.Callback, org compute.OrgID, now time.Time) (where *host, started, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{c.Owner(), c.Number}
	_, busy := s.busy[k]
	switch {
	case len(s.busy) >= inFlight:
		return nil, false, true
	case busy, s.orgs[org] >= inFlight-len(s.busy):
		return nil, false, false
	}
	s.sweep(now)
	at := place{org, hostOf(c.URL)}
	where = s.hosts[at]
	if where == nil {
		where = &host{place: at}
		s.hosts[at] = where
	}
	if where.busy >= hostInFlight || now.Before(where.openTo) {
		return nil, false, false
	}
	if where.failures >= failuresToOpen && where.busy > 0 {
		return nil, false, false // One try finds out whether it is back.
	}
	where.busy++
	s.busy[k] = org
	s.orgs[org]++
	return where, true, false
}

// sweep forgets hosts without a try that have not failed for long. The caller holds the
// lock.
func (s *Sender) sweep(now time.Time) {
	if now.Sub(s.swept) < openFor {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.hosts, func(_ place, h *host) bool {
		return h.busy == 0 && now.Sub(h.failedAt) >= forgetAfter
	})
}

// hostOf returns the host and port of a URL.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// try sends c once and hands on what became of it.
func (s *Sender) try(ctx context.Context, view *fsm.View, c *compute.Callback, where *host) {
	at := compute.InstantOf(s.cfg.Now())
	d := compute.Delivery{Execution: c.Execution, Org: c.Org, Number: c.Number, At: at}
	var reached bool
	switch {
	case at.Sub(c.From()) > compute.CallbackWindow:
		d.Error, reached = "it was not delivered within 24 hours", true
	default:
		target, err := s.fill(view, c)
		if err != nil {
			d.Error, reached = err.Error(), true
			break
		}
		d.Code, err = s.send(ctx, view, c, target)
		d.Delivered, reached = err == nil, answers(d.Code)
		if err != nil {
			d.Error = err.Error()
			next := compute.InstantOf(s.cfg.Now()).Add(Backoff(c.Tries, rand.Float64())) // The try took up to totalTimeout.
			if next.Sub(c.From()) <= compute.CallbackWindow {
				d.NextAt = next
			}
		}
	}
	d.Error = compute.Clip(d.Error, compute.MaxDeliveryError) // No replica decodes text that is not UTF-8.
	s.leave(where, reached)
	if ctx.Err() != nil {
		return // The next leader tries.
	}
	s.count(c, d)
	s.done <- d
}

// count counts a try, and logs that a callback is given up.
func (s *Sender) count(c *compute.Callback, d compute.Delivery) {
	switch {
	case d.Delivered:
		s.tries.WithLabelValues("delivered").Inc()
	case d.NextAt.IsZero():
		s.tries.WithLabelValues("given_up").Inc()
		s.cfg.Logger.Warn("callback given up", "callback", c.WebhookID(), "err", d.Error)
	default:
		s.tries.WithLabelValues("failed").Inc()
	}
}

// leave gives back a place, and keeps whether the host answered.
func (s *Sender) leave(where *host, reached bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	where.busy--
	if reached {
		if where.failures, where.openTo = 0, (time.Time{}); where.busy == 0 {
			delete(s.hosts, where.place)
		}
		return
	}
	where.failedAt = s.cfg.Now()
	if where.failures++; where.failures >= failuresToOpen {
		where.openTo = where.failedAt.Add(openFor)
	}
}

// giveBack gives back the places of a callback that was not tried.
func (s *Sender) giveBack(c *compute.Callback, where *host) {
	s.mu.Lock()
	where.busy--
	s.mu.Unlock()
	s.release(key{c.Owner(), c.Number})
}

// release gives back the place of a callback.
func (s *Sender) release(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	org, ok := s.busy[k]
	if !ok {
		return
	}
	delete(s.busy, k)
	if s.orgs[org]--; s.orgs[org] <= 0 {
		delete(s.orgs, org)
	}
}

// wake makes Lead check again.
func (s *Sender) wake() {
	select {
	case s.left <- struct{}{}:
	default:
	}
}

// fill returns the URL of c with the secrets that it names, which stay in its path or
// query: what they would end there is escaped.
func (s *Sender) fill(view *fsm.View, c *compute.Callback) (string, error) {
	if !strings.Contains(c.URL, "${{") {
		return c.URL, nil
	}
	value := func(name string) (string, error) { return s.cfg.Secret(view, c.Execution, name) }
	path, query, hasQuery := strings.Cut(c.URL, "?")
	path, err := compute.ExpandSecrets(path, func(name string) (string, error) {
		text, err := value(name)
		return strings.ReplaceAll(url.PathEscape(text), "%2F", "/"), err
	})
	if err != nil || !hasQuery {
		return path, err
	}
	query, err = compute.ExpandSecrets(query, func(name string) (string, error) {
		text, err := value(name)
		return url.QueryEscape(text), err
	})
	return path + "?" + query, err
}

// send posts c to its URL, target, and returns the status of the answer. An answer other than 2xx is an
// error.
func (s *Sender) send(ctx context.Context, view *fsm.View, c *compute.Callback, target string) (int, error) {
	body, ok := s.cfg.Body(view, c)
	if !ok {
		return 0, errors.New("what it is about is gone")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil || req.URL.Scheme != "https" {
		return 0, errors.New("the URL is not a valid https URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", s.cfg.Agent)
	if err := s.sign(view, c, req.Header, body); err != nil {
		return 0, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, withoutURL(err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // The status is the answer.
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, fmt.Errorf("the receiver answered %s", status(resp.StatusCode))
	}
	return resp.StatusCode, nil
}

// answers reports whether a status, 0 for none, is that of a host that is up: only one that
// cannot take requests is left alone.
func answers(code int) bool {
	switch code {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}

// status returns a status in words that are not the receiver's.
func status(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}

// sign sets the headers of Standard Webhooks, with a signature by each secret of the
// organization.
func (s *Sender) sign(view *fsm.View, c *compute.Callback, to http.Header, body []byte) error {
	now := s.cfg.Now()
	to.Set(standardwebhooks.HeaderWebhookID, c.WebhookID())
	to.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	secrets, err := s.cfg.Signing(view, orgOf(view, c), compute.InstantOf(now))
	if err != nil {
		s.cfg.Logger.Error("callback not signed", "callback", c.WebhookID(), "err", err)
		return errors.New("it cannot be signed: the secret of the organization cannot be read")
	}
	var signatures []string
	for _, secret := range secrets {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return errors.New("it cannot be signed: the secret of the organization is damaged")
		}
		signature, err := hook.Sign(c.WebhookID(), now, body)
		if err != nil {
			return fmt.Errorf("sign callback: %w", err)
		}
		signatures = append(signatures, signature)
	}
	if len(signatures) > 0 {
		to.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	}
	return nil
}

// withoutURL returns an error without the URL, which may hold a secret of its owner.
func withoutURL(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}

// Backoff returns the time between a try of a callback and the next one. It is
// exponential, at most an hour, and up to a quarter less by chance, 0 to 1.
func Backoff(before int, chance float64) time.Duration {
	d := lastRetry
	if before < 10 {
		d = min(d, firstRetry<<before)
	}
	return d - time.Duration(chance*float64(d)/4)
}

// record has the state keep what became of tries, many in one command.
func (s *Sender) record(ctx context.Context, term uint64) {
	for d := range s.done {
		batch := []compute.Delivery{d}
		for len(batch) < maxBatch && len(s.done) > 0 {
			batch = append(batch, <-s.done)
		}
		s.keep(ctx, term, batch) // When the term has ended, the next leader sends them again.
		for _, d := range batch {
			s.release(key{d.Owner(), d.Number})
		}
		s.wake()
	}
}

// keep has the state keep results. If it refuses them, it is given one after the other, and
// one that it refuses alone with a plain text, so that none holds up the others.
func (s *Sender) keep(ctx context.Context, term uint64, batch []compute.Delivery) {
	err := s.propose(ctx, term, batch)
	if err == nil || ctx.Err() != nil {
		return
	}
	if len(batch) > 1 {
		for i := range batch {
			s.keep(ctx, term, batch[i:i+1])
		}
		return
	}
	s.cfg.Logger.Error("callback refused by the state", "err", err)
	plain := batch[0]
	if plain.Error = "the result cannot be recorded"; plain.Delivered {
		plain.Error = ""
	}
	if err := s.propose(ctx, term, []compute.Delivery{plain}); err != nil && ctx.Err() == nil {
		s.cfg.Logger.Error("callback not recorded, and sent again", "err", err)
		loop.Sleep(ctx, period)
	}
}

// propose repeats a command with results while the cluster is not available. It returns why
// the results are refused.
func (s *Sender) propose(ctx context.Context, term uint64, batch []compute.Delivery) (refused error) {
	_ = loop.Until(ctx, period, func() bool {
		_, index, err := s.cfg.Propose(ctx, command.RecordDeliveries{Term: term, Deliveries: batch})
		if err != nil && ctx.Err() == nil && !mayPass(err) {
			refused = err
			return true
		}
		if err == nil {
			err = s.cfg.Wait(ctx, index) // An older view would have them sent again.
		}
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("callbacks not recorded yet", "count", len(batch), "err", err)
		}
		return err == nil
	})
	return refused
}

// mayPass reports whether an error of a proposal has nothing to do with what is proposed.
func mayPass(err error) bool {
	if e, ok := errors.AsType[*compute.Error](err); ok && e.Detail == "stale_term" {
		return true // The term is over, as the context will be in a moment.
	}
	code := compute.CodeOf(err)
	return code == compute.CodeUnavailable || code == compute.CodeNoSpace || code == compute.CodeRateLimited ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
