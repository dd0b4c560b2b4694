package api

import (
	"errors"
	"fmt"
	"sync"

	"berth/api/edge"
	"berth/api/handler"
)

// New returns a Server of the API for cfg that does nothing yet.
func New(cfg handler.Config) (*edge.Server, error) { return newAPI(cfg, routes) }

// newAPI returns a Server with the routes that table returns, and the viewer's.
func newAPI(cfg handler.Config, table func(*edge.Server, *handler.Core) []edge.Route) (*edge.Server, error) {
	if err := errors.Join(cfg.Config.Validate(), missing(&cfg)); err != nil {
		return nil, fmt.Errorf("new api: %w", err)
	}
	s, err := edge.New(cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("new api: %w", err)
	}
	cfg.Config = s.Config()
	v := new(viewer)
	all := append(table(s, handler.New(s.Core, cfg)), v.Routes()...)
	v.openapi = sync.OnceValues(func() ([]byte, error) { return openAPI(all, cfg.Version) })
	s.SetRoutes(all)
	return s, nil
}

// missing reports all parts that the groups need and do not have.
func missing(c *handler.Config) error {
	if c.Relay != nil {
		return nil
	}
	var absent []error
	for _, part := range []struct {
		name    string
		missing bool
	}{
		{"Logs", c.Logs == nil},
		{"Blobs", c.Blobs == nil},
		{"Trees", c.Trees == nil},
		{"BundleMax", c.BundleMax <= 0},
		{"Judge", c.Judge == nil},
		{"Explain", c.Explain == nil},
		{"Chart", c.Chart == nil},
		{"NewJoinToken", c.NewJoinToken == nil},
	} {
		if part.missing {
			absent = append(absent, errors.New(part.name+" is missing"))
		}
	}
	return errors.Join(absent...)
}
