package edge

import (
	"errors"
	"testing"

	"github.com/valyala/fasthttp"

	"berth/api/edge/limit"
	"berth/compute"
)

// TestCrowdedNodeIsNotTheOrganizationsFault refuses a request to a model because others have
// all places of the node, and because the organization has its share.
func TestCrowdedNodeIsNotTheOrganizationsFault(t *testing.T) {
	c := &modelCall{serviceCall: serviceCall{Server: &Server{Core: &Core{}}, ctx: new(fasthttp.RequestCtx), r: &Request{}}}
	c.modelsServed = limit.NewBudget(3, 2)
	owner := c.r.Caller.Actor.Org.String()
	check := func(status int, code, retry string) {
		t.Helper()
		err := c.infer("/completions")
		f := failureOf(err)
		e, _ := errors.AsType[*compute.Error](err)
		if e == nil || f.status != status || e.Detail != code || f.retryAfter != retry {
			t.Errorf("got %d, %v", f.status, err)
		}
	}
	c.modelsServed.Take(owner, 2)
	check(429, "rate_limit_exceeded", "1")
	c.modelsServed.Give(owner, 2)
	c.modelsServed.Take("another", 2)
	c.modelsServed.Take("a third", 1)
	check(503, "overloaded", "1")
}
