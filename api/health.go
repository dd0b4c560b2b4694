package api

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/prometheus/common/expfmt"

	"berth/api/wire"
	"berth/compute"
)

func (s *Server) ping(*request) (any, error) { return wire.Ping{Status: "ok"}, nil }

func (s *Server) version(*request) (any, error) {
	return wire.Version{Version: s.cfg.Version, Build: s.cfg.Build}, nil
}

// health answers how the node is.
func (s *Server) health(*request) (any, error) {
	h := s.condition()
	return h, nil
}

// standing returns how near the node is to the state.
func (s *Server) standing() Standing {
	if s.cfg.Relay != nil {
		return s.cfg.Relay.Status()
	}
	index, known, lastContact := s.cfg.Reader.Status()
	return Standing{Index: index, KnownLeader: known, LastContact: lastContact.Milliseconds()}
}

// condition returns how the node is.
func (s *Server) condition() wire.Health {
	now := s.standing()
	h := wire.Health{
		Status: "ok", KnownLeader: now.KnownLeader, LastContactMS: now.LastContact,
		Index: now.Index, Version: s.cfg.Version,
	}
	switch {
	case s.draining.Load():
		h.Status = "the node is stopping"
	case !now.KnownLeader:
		h.Status = "no leader is known"
	case now.LastContact > staleMax.Milliseconds():
		h.Status = "the leader was not heard for too long"
	case s.cfg.Ready != nil:
		if err := s.cfg.Ready(); err != nil {
			h.Status = compute.MessageOf(err)
		}
	}
	return h
}

// ready answers 503 while the node cannot serve.
func (s *Server) ready(*request) (any, error) {
	h := s.condition()
	if h.Status != "ok" {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"Not ready: %s.", strings.TrimSuffix(h.Status, ".")).Named("not_ready")
	}
	return h, nil
}

// scrape answers the metrics in the form that the scraper wants.
func (s *Server) scrape(r *request) (any, error) {
	if s.cfg.Gatherer == nil {
		return nil, errNotFound()
	}
	families, err := s.cfg.Gatherer.Gather()
	if err != nil && len(families) == 0 {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	format := expfmt.NegotiateAccept(
		http.Header{"Accept": {r.accept}}, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	var buf bytes.Buffer
	enc := expfmt.NewEncoder(&buf, format)
	for _, family := range families {
		if err := enc.Encode(family); err != nil {
			return nil, fmt.Errorf("encode metrics: %w", err)
		}
	}
	if closer, ok := enc.(expfmt.Closer); ok {
		if err := closer.Close(); err != nil {
			return nil, fmt.Errorf("encode metrics: %w", err)
		}
	}
	return text{contentType: string(format), body: buf.Bytes()}, nil
}

// targets answers every node that has metrics, those that are down too: that
// they cannot be scraped is what one wants to see.
func (s *Server) targets(*request) (any, error) {
	view, _, _ := s.cfg.Reader.Stale()
	out := []wire.Target{}
	for n := range view.Nodes() {
		u, err := url.Parse(n.Metrics)
		if err != nil || u.Host == "" {
			continue
		}
		out = append(out, wire.Target{
			Targets: []string{u.Host},
			Labels: map[string]string{
				"__scheme__": u.Scheme, "__metrics_path__": u.Path,
				"node": n.Name, "node_id": n.ID.String(), "role": n.Role.String(),
			},
		})
	}
	return out, nil
}

// document answers the API as OpenAPI.
func (s *Server) document(*request) (any, error) {
	return text{contentType: "application/json", body: s.openapi}, nil
}
