package api

import "reflect"

// RouteDoc is what the documentation says of a route.
type RouteDoc struct {
	Method, Path, Tag, Summary, Needs string
	Query, Body, Reply                reflect.Type
	Accepts                           []string
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
	for _, rt := range table(groups(new(Server), new(core))...) {
		out = append(out, RouteDoc{
			Method: rt.method, Path: rt.path, Tag: rt.tag, Summary: rt.summary, Needs: needText(&rt),
			Query: typeOf(rt.query), Body: typeOf(rt.body), Reply: typeOf(rt.reply), Accepts: rt.accepts,
		})
	}
	return out
}
