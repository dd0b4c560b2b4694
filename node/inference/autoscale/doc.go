// Package autoscale decides how many replicas deployments of models have, from the counts
// of the routers of all servers.
//
// It is not for starting or stopping replicas: the state does that with services.
//
// Rules: the targets and the number of replicas are in the state; only the counts since
// this leader began are kept here. A new leader therefore scales down a window later, and
// never sooner. How long a deployment had no requests the servers know.
package autoscale
