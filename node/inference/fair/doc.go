// Package fair shares the places of a model's replicas among organizations. A request that
// finds all places taken waits in a queue that serves organizations by deficit round robin.
//
// It is not for limits of one organization, which refuse at once (package edge), nor
// for the choice of a replica (package router).
//
// Rules: a Queue is pure and knows no time. An organization that waits gets as many
// tokens as every other one that waits, within the cost of one request, however many
// requests it sends and however large they are. A Gate never lets a place stay free
// while a request waits.
package fair
