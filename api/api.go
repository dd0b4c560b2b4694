package api

import (
	"errors"
	"fmt"

	"berth/api/edge"
)

// New returns a Server of the API for cfg that does nothing yet.
func New(cfg Config) (*edge.Server, error) { return newAPI(cfg, groups) }

// newAPI returns a Server with the groups that all returns.
func newAPI(cfg Config, all func(*edge.Server, *core) []group) (*edge.Server, error) {
	if err := errors.Join(cfg.Config.Validate(), cfg.validate()); err != nil {
		return nil, fmt.Errorf("new api: %w", err)
	}
	s, err := edge.New(cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("new api: %w", err)
	}
	cfg.Config = s.Config()
	c := newCore(s.Core, cfg)
	routes := table(all(s, c)...)
	if c.openapi, err = openAPI(routes, cfg.Version); err != nil {
		return nil, fmt.Errorf("new api: %w", err)
	}
	s.SetRoutes(routes)
	return s, nil
}

// validate reports all parts that the groups miss.
func (c *Config) validate() error {
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
