// Package deployment has the endpoints of what answers requests: services, the
// deployments of models, which are services with an engine, and the models that
// operators publish for every organization.
//
// It is not for the requests themselves, which package edge passes to replicas, nor for
// how many replicas there are: the leader and package node/inference decide that.
//
// Rules. A service is an execution: it is submitted, found and stopped as one, with
// packages submission and execution. A deployment that was deleted is not found. A model
// that cannot fit the GPUs it asks for is refused before it is submitted (size.go).
package deployment
