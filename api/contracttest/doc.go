// Package contracttest asks a live API for everything that the service's
// specification shows, and holds each answer against it: status, types, which
// fields are there, which may be null.
//
// It knows that specification and nothing else: it imports nothing of Berth,
// accepts fields that it does not know, and takes no part in how an execution
// gets executed. Tests point it at any node of a cluster. It is imported by
// tests only.
package contracttest
