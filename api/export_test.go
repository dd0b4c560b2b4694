package api

import (
	"reflect"
	"runtime"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/compute"
)

// RouteDoc has the documentation of a route, and its access rule.
type RouteDoc struct {
	Need                              edge.Need
	Scope                             compute.Scope
	Method, Path, Tag, Summary, Needs string
	Query, Body, Reply                reflect.Type
	Accepts                           []string
	Raw                               bool // The body is no JSON.
	Streamed                          bool
	Once                              bool
	Group, Name                       string // The group and the method of its handler.
}

// Routes returns all routes for the documentation.
func Routes() []RouteDoc {
	typeOf := func(fresh func() any) reflect.Type {
		if fresh == nil {
			return nil
		}
		return bodyType(fresh)
	}
	var out []RouteDoc
	all := append(routes(new(edge.Server), new(handler.Core)), new(viewer).Routes()...)
	for _, rt := range all {
		group, name := handlerOf(&rt)
		out = append(out, RouteDoc{
			Need: rt.Need, Scope: rt.Scope(),
			Method: rt.Method, Path: rt.Path, Tag: rt.Tag, Summary: rt.Summary, Needs: needText(&rt),
			Query: typeOf(rt.Query), Body: typeOf(rt.Body), Reply: typeOf(rt.Reply), Accepts: rt.Accepts,
			Raw: rt.Raw && rt.Body == nil, Streamed: rt.Streamed, Once: rt.Once, Group: group, Name: name,
		})
	}
	return out
}

// handlerOf returns the type and the name of the method that serves a route.
func handlerOf(rt *edge.Route) (group, name string) {
	full := runtime.FuncForPC(reflect.ValueOf(rt.Handle).Pointer()).Name() // As in berth/api.(*orgs).listOrgs-fm.
	_, full, _ = strings.Cut(full, "(*")
	group, name, _ = strings.Cut(full, ").")
	return group, strings.TrimSuffix(name, "-fm")
}
