package handler

import "berth/api/edge"

// A Group is the handlers of one part of the specification.
type Group interface{ Routes() []edge.Route }

// Table returns the routes of groups.
func Table(groups ...Group) []edge.Route {
	var all []edge.Route
	for _, g := range groups {
		all = append(all, g.Routes()...)
	}
	return all
}
