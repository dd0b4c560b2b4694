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

// probes serves health, metrics and the OpenAPI document of this node.
type probes struct {
	*core
}

// routes returns the routes of the group.
func (g *probes) routes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/health/ping", local: true,
			summary: "Whether the node answers.", reply: of[wire.Ping](), handle: g.ping,
		},
		{
			method: http.MethodGet, path: "/livez", local: true,
			summary: "Whether the process lives.", reply: of[wire.Ping](), handle: g.ping,
		},
		{
			method: http.MethodGet, path: root + "/health/version", local: true,
			summary: "The version of the node.", reply: of[wire.Version](), handle: g.version,
		},
		{
			method: http.MethodGet, path: "/readyz", local: true,
			summary: "Whether the node can serve: 503 when not.", reply: of[wire.Health](), handle: g.ready,
		},
		{
			method: http.MethodGet, path: "/healthz", local: true,
			summary: "The health of the node, always 200.", reply: of[wire.Health](), handle: g.health,
		},
		{
			method: http.MethodGet, path: "/metrics", need: needScraper, local: true,
			summary: "Metrics for Prometheus.", accepts: []string{"text/plain"}, handle: g.scrape,
		},
		{
			method: http.MethodGet, path: "/metrics/targets", need: needScraper,
			summary: "Every node, for Prometheus' HTTP service discovery.",
			reply:   of[[]wire.Target](), handle: g.targets,
		},
		{
			method: http.MethodGet, path: "/openapi.json", local: true,
			summary: "This API as OpenAPI 3.1.", accepts: []string{"application/json"}, handle: g.document,
		},
	}
}

func (g *probes) ping(*request) (any, error) { return wire.Ping{Status: "ok"}, nil }

func (g *probes) version(*request) (any, error) {
	return wire.Version{Version: g.cfg.Version, Build: g.cfg.Build}, nil
}

// health answers the health of the node.
func (g *probes) health(*request) (any, error) {
	h := g.condition()
	return h, nil
}

// condition returns the health of the node.
func (g *probes) condition() wire.Health {
	now := g.queryMeta()
	h := wire.Health{
		Status: "ok", KnownLeader: now.KnownLeader, LastContactMS: now.LastContact,
		Index: now.Index, Version: g.cfg.Version,
	}
	switch {
	case g.Draining():
		h.Status = "the node is stopping"
	case !now.KnownLeader:
		h.Status = "no leader is known"
	case now.LastContact > staleMax.Milliseconds():
		h.Status = "the leader was not heard for too long"
	case g.cfg.Ready != nil:
		if err := g.cfg.Ready(); err != nil {
			h.Status = compute.MessageOf(err)
		}
	}
	return h
}

// ready answers 503 while the node cannot serve.
func (g *probes) ready(*request) (any, error) {
	h := g.condition()
	if h.Status != "ok" {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"Not ready: %s.", strings.TrimSuffix(h.Status, ".")).Named("not_ready")
	}
	return h, nil
}

// scrape answers the metrics in the scraper's format.
func (g *probes) scrape(r *request) (any, error) {
	if g.cfg.Gatherer == nil {
		return nil, errNotFound()
	}
	families, err := g.cfg.Gatherer.Gather()
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

// targets answers every node with metrics. Nodes that are down are included, so
// that their failed scrapes are seen.
func (g *probes) targets(*request) (any, error) {
	view, _, _ := g.cfg.Reader.Stale()
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
func (g *probes) document(*request) (any, error) {
	return text{contentType: "application/json", body: g.openapi}, nil
}
