package faults

import (
	"context"
	"slices"

	"berth/bench/faults/check"
)

// workload is a kind of client.
type workload interface {
	name() string
	// clients returns the number of clients.
	clients() int
	// prepare creates the objects that the clients need, before the first fault.
	prepare(ctx context.Context) error
	// run runs one client until ctx ends. Its last operation may end in doubt.
	run(ctx context.Context, c *caller)
	// finish runs after every fault is repaired, the clients have ended and the
	// accounts are closed. It returns the violations that only the workload can
	// detect.
	finish(ctx context.Context) []check.Violation
}

// makers returns the constructors of the workloads by name.
func makers() map[string]func(*session) workload {
	return map[string]func(*session) workload{
		"register": func(s *session) workload { return &registers{session: s} },
		"account":  func(s *session) workload { return &accounts{session: s} },
		"life": func(s *session) workload {
			return &executionLoad{session: s, hooks: map[string]bool{}, long: map[string]bool{}}
		},
		"files":     func(s *session) workload { return &files{session: s} },
		"keys":      func(s *session) workload { return &keyring{session: s} },
		"selection": func(s *session) workload { return &selections{session: s} },
	}
}

// Workloads returns the sorted names of all workloads.
func Workloads() []string {
	var names []string
	for name := range makers() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
