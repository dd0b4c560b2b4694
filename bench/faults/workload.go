package faults

import (
	"context"
	"slices"

	"berth/bench/faults/check"
)

// workload is a kind of client.
type workload interface {
	name() string
	// clients returns how many of them there are.
	clients() int
	// prepare makes what they need, while nothing is broken.
	prepare(ctx context.Context) error
	// run is one client until ctx ends. What it is doing then may end in doubt.
	run(ctx context.Context, c *caller)
	// finish is called once everything is mended, the clients are gone and the
	// books are closed. It returns what only the workload knows to be wrong.
	finish(ctx context.Context) []check.Violation
}

// makers are the workloads by name.
func makers() map[string]func(*session) workload {
	return map[string]func(*session) workload{
		"register": func(s *session) workload { return &registers{session: s} },
		"account":  func(s *session) workload { return &accounts{session: s} },
		"life": func(s *session) workload {
			return &lives{session: s, hooks: map[string]bool{}, long: map[string]bool{}}
		},
		"keys":      func(s *session) workload { return &keyring{session: s} },
		"selection": func(s *session) workload { return &selections{session: s} },
	}
}

// Workloads returns the names of all workloads, sorted.
func Workloads() []string {
	var names []string
	for name := range makers() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
