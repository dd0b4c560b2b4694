// Package enginemetrics reads figures of the engines of this node, such as how many
// requests wait inside one, and shows them among the node's own metrics.
//
// It is not for counting requests, which routers do on every node (package api/edge), nor
// for deciding how many replicas there are (package autoscale).
//
// Rules: engines load models of users, so their answers are bounded in bytes and time, and
// only a few figures of them become metrics: an engine chooses neither names nor labels.
// Figures are those of the last reading. A replica that could not be read is in none.
package enginemetrics
