package edge

import (
	"net/http"
	"strings"

	"berth/compute"
)

// scopesByTag has the scopes that keys need for the routes of a tag: to read, and to
// change something. Tags that are not here need the scope admin.
var scopesByTag = map[string][2]compute.Scope{ //nolint:gochecknoglobals // A table.
	"Machine Types":                 {compute.ScopeNone, compute.ScopeAdmin},
	"Pricing":                       {compute.ScopeNone, compute.ScopeAdmin},
	"User Quotas":                   {compute.ScopeNone, compute.ScopeAdmin},
	"Billing":                       {compute.ScopeBillingRead, compute.ScopeAdmin},
	"Streaming Execution":           {compute.ScopeExecutionsRead, compute.ScopeExecutionsWrite},
	"Docker Execution":              {compute.ScopeExecutionsRead, compute.ScopeExecutionsWrite},
	"Docker Compose Execution":      {compute.ScopeExecutionsRead, compute.ScopeExecutionsWrite},
	"GPU Selection Execution":       {compute.ScopeExecutionsRead, compute.ScopeExecutionsWrite},
	"Storage Files":                 {compute.ScopeStorage, compute.ScopeStorage},
	"Storage Credentials":           {compute.ScopeStorage, compute.ScopeStorage},
	"Execution Management":          {compute.ScopeExecutionsRead, compute.ScopeExecutionsWrite},
	"Workload Management":           {compute.ScopeExecutionsRead, compute.ScopeExecutionsWrite},
	"Observability - Logs":          {compute.ScopeExecutionsRead, compute.ScopeExecutionsWrite},
	"Observability - GPU Metrics":   {compute.ScopeExecutionsRead, compute.ScopeExecutionsWrite},
	"Dedicated Deployment External": {compute.ScopeInference, compute.ScopeInference},
	"Serverless Inference":          {compute.ScopeInference, compute.ScopeInference},
}

// Scope returns the scope that an API key needs for the route, if it is restricted to
// some.
func (rt *Route) Scope() compute.Scope {
	switch reads := rt.Method == http.MethodGet; {
	case rt.Need == NeedNothing || rt.Need == NeedScraper:
		return compute.ScopeNone
	case reads && (rt.Path == Root+"/user/status" || rt.Path == Root+"/orgs"):
		return compute.ScopeNone // Any key may read its user and organizations.
	case rt.Path == Root+"/billing/history":
		return compute.ScopeExecutionsRead
	case rt.Need == NeedStream:
		return compute.ScopeExecutionsRead // A long query to read may be a POST.
	default:
		scopes, known := scopesByTag[rt.Tag]
		switch {
		case !known:
			return compute.ScopeAdmin
		case reads:
			return scopes[0]
		}
		return scopes[1]
	}
}

// Allows refuses a caller whose API key is restricted to other scopes than one.
func (c *Caller) Allows(needed compute.Scope) error { return c.checkScope(needed) }

// checkScope refuses a key that is restricted to other parts of the API.
func (c *Caller) checkScope(needed compute.Scope) error {
	if compute.Allows(c.scopes, needed) {
		return nil
	}
	return compute.Errorf(compute.CodeForbidden, "This needs an API key with the scope %s; this one has %s.",
		needed, strings.Join(compute.ScopeNames(c.scopes), ", ")).Named("scope_missing")
}
