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

// session is the shared state of one run.
type session struct {
	cfg     Config
	world   *world.World
	history *check.History
	tally   *tally
	begun   time.Time
	boot    int64          // The boottime at begun, which marks refer to.
	admin   *client.Client // A patient client, for requests that are not checked.

	mu       sync.Mutex
	orgs     []organization
	refusals map[string]int
	wrong    []check.Violation
	closes   []func()
	// stopped holds executions that a client stopped, or may have.
	stopped map[compute.ExecutionID]bool

	// Set at the end, by the only goroutine left.
	final     map[string]*finalState // By organization.
	newest    uint64                 // The index of the newest state read.
	callbacks int                    // Outbox rows in that state.
	closing   int64                  // When the first account was closed.
}

// organization is a user with an organization and an API key.
type organization struct {
	slug, email, password, key string

	id compute.OrgID
}

// now returns the nanoseconds since the run began.
func (s *session) now() int64 { return int64(time.Since(s.begun)) }

// random returns the random source of one part of the run.
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

// close closes the connections and files that clients keep open.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.closes {
		f()
	}
}

// unexpected records a refusal that no client had reason to expect, which is a
// violation: no fault justifies refusing a valid request for good. The worst
// refusal is a missing object whose creation was acknowledged.
func (s *session) unexpected(workload, what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, name := "refused", workload+": "+client.CodeOf(err)
	if answer, ok := errors.AsType[*client.Error](err); ok && answer.Status == http.StatusNotFound {
		kind = "lost"
	}
	if s.refusals[name]++; s.refusals[name] <= maxRefusals {
		s.wrong = append(s.wrong, check.Violation{What: kind, Object: workload, Detail: fmt.Sprintf("%s: %v", what, err)})
	}
}

// noteStop records that a client stops an execution.
func (s *session) noteStop(id compute.ExecutionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped[id] = true
}

// violate records violations that a nemesis saw.
func (s *session) violate(wrong []check.Violation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, wrong...)
}

// maxRefusals is how many refusals of one kind the report names.
const maxRefusals = 3

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

// newOrganization makes an organization with a key. Its parked executions are
// never placed.
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

// settle records the end of a try. out is the answer if it took effect.
func settle(t *check.Try, o outcome, out any) {
	switch o {
	case done:
		t.Return(out)
	case refused, unsent, full:
		t.Drop()
	case unknown:
	}
}
