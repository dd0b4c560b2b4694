package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/prometheus/common/expfmt"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// probes serves health, metrics and the OpenAPI document of this node.
type probes struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *probes) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/health/ping", Local: true,
			Summary: "Whether the node answers.", Reply: edge.Type[wire.Ping](), Handle: g.ping,
		},
		{
			Method: http.MethodGet, Path: "/livez", Local: true,
			Summary: "Whether the process lives.", Reply: edge.Type[wire.Ping](), Handle: g.ping,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/health/version", Local: true,
			Summary: "The version of the node.", Reply: edge.Type[wire.Version](), Handle: g.version,
		},
		{
			Method: http.MethodGet, Path: "/readyz", Local: true,
			Summary: "Whether the node can serve: 503 when not.", Reply: edge.Type[wire.Health](), Handle: g.ready,
		},
		{
			Method: http.MethodGet, Path: "/healthz", Local: true,
			Summary: "The health of the node, always 200.", Reply: edge.Type[wire.Health](), Handle: g.health,
		},
		{
			Method: http.MethodGet, Path: "/metrics", Need: edge.NeedScraper, Local: true,
			Summary: "Metrics for Prometheus.", Accepts: []string{"text/plain"}, Handle: g.scrape,
		},
		{
			Method: http.MethodGet, Path: "/metrics/targets", Need: edge.NeedScraper,
			Summary: "Every node, for Prometheus' HTTP service discovery.",
			Reply:   edge.Type[[]wire.Target](), Handle: g.targets,
		},
	}
}

func (g *probes) ping(*edge.Request) (any, error) { return wire.Ping{Status: "ok"}, nil }

func (g *probes) version(*edge.Request) (any, error) {
	return wire.Version{Version: g.Config.Version, Build: g.Config.Build}, nil
}

// health answers the health of the node.
func (g *probes) health(*edge.Request) (any, error) {
	h := g.condition()
	return h, nil
}

// condition returns the health of the node.
func (g *probes) condition() wire.Health {
	now := g.QueryMeta()
	h := wire.Health{
		Status: "ok", KnownLeader: now.KnownLeader, LastContactMS: now.LastContact,
		Index: now.Index, Version: g.Config.Version,
	}
	switch {
	case g.Draining():
		h.Status = "the node is stopping"
	case !now.KnownLeader:
		h.Status = "no leader is known"
	case now.LastContact > edge.StaleMax.Milliseconds():
		h.Status = "the leader was not heard for too long"
	case g.Config.Ready != nil:
		if err := g.Config.Ready(); err != nil {
			h.Status = compute.MessageOf(err)
		}
	}
	return h
}

// ready answers 503 while the node cannot serve.
func (g *probes) ready(*edge.Request) (any, error) {
	h := g.condition()
	if h.Status != "ok" {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"Not ready: %s.", strings.TrimSuffix(h.Status, ".")).Named("not_ready")
	}
	return h, nil
}

// scrape answers the metrics in the scraper's format.
func (g *probes) scrape(r *edge.Request) (any, error) {
	if g.Config.Gatherer == nil {
		return nil, edge.NotFound()
	}
	if err := g.AwaitTurn(r); err != nil {
		return nil, err
	}
	families, err := g.Config.Gatherer.Gather()
	if err != nil && len(families) == 0 {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	format := expfmt.NegotiateAccept(
		http.Header{"Accept": {r.Accept}}, expfmt.DefaultOpenMetricsAcceptedFormats()...)
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
	return answer.Text{ContentType: string(format), Body: buf.Bytes()}, nil
}

// targets answers every node with metrics. Nodes that are down are included, so
// that their failed scrapes are seen.
func (g *probes) targets(*edge.Request) (any, error) {
	view, _, _ := g.Config.Reader.Stale()
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
