package api

import (
	"errors"
	"fmt"

	"berth/api/edge"
	"berth/api/handler"
)

// New returns a Server of the API for cfg that does nothing yet.
func New(cfg handler.Config) (*edge.Server, error) { return newAPI(cfg, groups) }

// newAPI returns a Server with the groups that all returns.
func newAPI(cfg handler.Config, all func(*edge.Server, *handler.Core) []handler.Group) (*edge.Server, error) {
	if err := errors.Join(cfg.Config.Validate(), missing(&cfg)); err != nil {
		return nil, fmt.Errorf("new api: %w", err)
	}
	s, err := edge.New(cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("new api: %w", err)
	}
	cfg.Config = s.Config()
	v := new(viewer)
	routes := append(handler.Table(all(s, handler.New(s.Core, cfg))...), v.Routes()...)
	if v.openapi, err = openAPI(routes, cfg.Version); err != nil {
		return nil, fmt.Errorf("new api: %w", err)
	}
	s.SetRoutes(routes)
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
