package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/bench/faults/world"
	"berth/compute"
)

// session is what the parts of one run share.
type session struct {
	cfg     Config
	world   *world.World
	history *check.History
	tally   *tally
	begun   time.Time
	boot    int64          // The boottime then, which is what marks tell.
	admin   *client.Client // Patient; for what is not checked.

	mu     sync.Mutex
	orgs   []organization
	oddity map[string]int
	wrong  []check.Violation
	closes []func()
	// stopped are executions that a client asked to stop, or may have.
	stopped map[compute.ExecutionID]bool

	// Of the end, when only one goroutine is left.
	books     map[string]*books // By organization.
	newest    uint64            // The index of the newest state that was read.
	callbacks int               // Rows of the outbox in it.
	closing   int64             // When the first books were closed.
}

// organization is a user with an organization and an API key.
type organization struct {
	slug, email, password, key string

	id compute.OrgID
}

// now returns the nanoseconds since the run began.
func (s *session) now() int64 { return int64(time.Since(s.begun)) }

// random returns the source of chance of one part of the run.
func (s *session) random(part string, number uint64) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(part))
	h.Write(binary.BigEndian.AppendUint64(nil, number))
	return rand.New(rand.NewPCG(s.cfg.Seed, h.Sum64())) //nolint:gosec // A seed must repeat it.
}

func (s *session) onClose(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closes = append(s.closes, f)
}

// close gives up what clients keep open.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.closes {
		f()
	}
}

// odd notes a refusal that no client had reason to expect, which is a
// violation: whatever is broken, what is right is never refused for good. That
// something is not there which was acknowledged is the worst of them.
func (s *session) odd(workload, what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, name := "refused", workload+": "+client.CodeOf(err)
	if answer, ok := errors.AsType[*client.Error](err); ok && answer.Status == http.StatusNotFound {
		kind = "lost"
	}
	if s.oddity[name]++; s.oddity[name] <= oddSaid {
		s.wrong = append(s.wrong, check.Violation{What: kind, Object: workload, Detail: fmt.Sprintf("%s: %v", what, err)})
	}
}

// noteStop notes that a client asks an execution to stop.
func (s *session) noteStop(id compute.ExecutionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped[id] = true
}

// violated notes what a nemesis saw that must not be.
func (s *session) violated(wrong []check.Violation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, wrong...)
}

// oddSaid is how many refusals of one kind are named.
const oddSaid = 3

// createOrg makes a user with an organization.
func (s *session) createOrg(ctx context.Context, slug string) error {
	_, err := s.admin.CreateUser(ctx, wire.NewUser{
		Email: slug + "@example.com", Password: "correct horse battery " + slug, OrgSlug: slug, OrgName: slug,
	})
	if err != nil {
		return fmt.Errorf("create organization %s: %w", slug, err)
	}
	return nil
}

// newOrganization makes an organization with a key, of which parked executions
// are never placed.
func (s *session) newOrganization(ctx context.Context, slug string) (organization, error) {
	o := organization{slug: slug, email: slug + "@example.com", password: "correct horse battery " + slug}
	if err := s.createOrg(ctx, slug); err != nil {
		return o, err
	}
	login, err := s.admin.WithToken("").Login(ctx, o.email, o.password)
	if err != nil {
		return o, fmt.Errorf("sign in: %w", err)
	}
	key, err := s.admin.WithToken(login.AccessToken).CreateKey(ctx, slug, "bench")
	if err != nil {
		return o, fmt.Errorf("create key: %w", err)
	}
	o.key, o.id = key.PlaintextKey, key.OrgID
	_, err = s.admin.SetQuota(ctx, wire.NewQuota{Org: slug, Tag: parkedTag, MaxGPUMilli: 1})
	if err != nil {
		return o, fmt.Errorf("set quota: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orgs = append(s.orgs, o)
	return o, nil
}

// settle notes how a try of a change ended: out is the answer of one that took
// effect.
func settle(t *check.Try, o outcome, out any) {
	switch o {
	case done:
		t.Return(out)
	case refused, unsent, full:
		t.Drop()
	case unknown:
	}
}
