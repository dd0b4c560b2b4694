package edge

import (
	"encoding/json"
	"net/http"
	"strings"

	"berth/compute"
)

// known returns the models that the caller may ask.
func (c *modelCall) known() (list []*compute.Execution) {
	for e := range c.r.View.Live(c.r.Caller.Actor.Org) {
		if e.Deployment != nil && e.Stop == compute.StopNone && len(list) < modelsListed {
			list = append(list, e)
		}
	}
	return list
}

// unknown is the error for a model that does not exist. It names those that do.
func (c *modelCall) unknown(name string) error {
	var ids []string
	for m := range c.r.View.Models() {
		if len(ids) < statedModels {
			ids = append(ids, m.ID)
		}
	}
	for _, e := range c.known() {
		if len(ids) < statedModels {
			ids = append(ids, e.ID.String())
		}
	}
	list := "none"
	if len(ids) > 0 {
		list = strings.Join(ids, ", ")
	}
	return compute.Errorf(compute.CodeNotFound, "The model %q does not exist. There are: %s.",
		compute.Clip(name, 100), list).
		Named("model_not_found")
}

// listModels answers the list of models, or one of them.
func (c *modelCall) listModels(one string) error {
	if err := c.renew(); err != nil {
		return err
	}
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
		Root    string `json:"root"` // The model on the hub.
	}
	list := []model{}
	for published := range c.r.View.Models() {
		e, ok := c.r.View.Execution(published.Org, published.Deployment)
		if !ok {
			continue
		}
		m := model{published.ID, "model", published.CreatedAt.Time().Unix(), publishedBy, e.Inference.Model}
		if one == m.ID {
			return c.writeJSON(m)
		}
		list = append(list, m)
	}
	for _, e := range c.known() {
		m := model{e.ID.String(), "model", e.CreatedAt.Time().Unix(), c.r.Caller.Org.Slug, e.Inference.Model}
		if one == m.ID {
			return c.writeJSON(m)
		}
		list = append(list, m)
	}
	if one != "" {
		return c.unknown(one)
	}
	return c.writeJSON(map[string]any{"object": "list", "data": list})
}

func (c *modelCall) writeJSON(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.writeHeaders(c.ctx, c.r)
	c.ctx.SetContentType("application/json")
	c.ctx.Response.SetBodyRaw(data)
	c.observe(c.r, c.r.route.Method, http.StatusOK, c.took(c.r))
	return nil
}
