// Package execution has the endpoints of executions: Python programs, images, Compose
// files and GPU selections from their start to their record, with output, logs, metrics,
// files, callbacks and explanations, and the bundles and environments that they start
// with.
//
// It is not for services and deployments: package deployment has their routes, and uses
// what they have in common with other executions. How a start becomes a command is in
// package submission.
//
// Rules. An execution is looked up by handler.Core.Find, which also finds archived ones,
// and which finds none of another organization. Streams of one execution share the wait
// for its end (ending.go). Output that this node does not have is asked for within a
// budget, and a warning of the answer says what is missing.
package execution
