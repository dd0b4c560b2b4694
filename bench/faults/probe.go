package faults

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"berth/api/client"
	"berth/api/wire"
)

// The probe finds the moment from which writes are accepted again. It sends one
// write every 25 ms to each node in turn, without waiting for earlier answers.
const (
	probeOrg   = "probe"
	probeEvery = 25 * time.Millisecond
	probeLimit = 2 * time.Second // Timeout of one write.
	probeMost  = 64              // Writes in flight at most.
)

// takesWrites waits until a write sent after the call is accepted.
func (s *session) takesWrites(ctx context.Context) error {
	now := s.now()
	next := s.tally.watch(now, now)
	defer s.probing(ctx, next)()
	select {
	case <-next.seen:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a write to be accepted: %w", ctx.Err())
	}
}

// probing probes for the watch until stop is called.
func (s *session) probing(ctx context.Context, w *watch) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var prober sync.WaitGroup
	prober.Go(func() {
		if err := s.probe(ctx, w); err != nil {
			s.cfg.Logger.Warn("no probe", "err", err)
		}
	})
	return func() { cancel(); prober.Wait() }
}

// probe writes until the watch has seen an accepted write or ctx ends.
func (s *session) probe(ctx context.Context, first *watch) error {
	transport := &http.Transport{DialContext: (&net.Dialer{Timeout: probeLimit}).DialContext, DisableKeepAlives: true}
	var nodes []*client.Client
	for _, n := range s.world.Nodes {
		c, err := client.New(client.Config{
			Addrs: []string{n.URL()}, Token: s.world.RootToken, RetryFor: -1, HTTP: &http.Client{Transport: transport},
		})
		if err != nil {
			return err
		}
		nodes = append(nodes, c)
	}
	ctx, cancel := context.WithCancel(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	places := make(chan struct{}, probeMost)
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-first.seen:
			return nil
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		select {
		case places <- struct{}{}:
		default:
			continue
		}
		asked.Go(func() {
			s.probeOnce(ctx, nodes[i%len(nodes)], i)
			<-places
		})
	}
}

// probeOnce sends one write and records whether it was accepted.
func (s *session) probeOnce(ctx context.Context, node *client.Client, value int) {
	one, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	called := s.now()
	if _, err := node.SetQuota(one, wire.NewQuota{Org: probeOrg, Tag: probeOrg, MaxGPUMilli: value + 1}); err == nil {
		s.tally.accepted(called, s.now())
	}
}
