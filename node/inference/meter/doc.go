// Package meter sets credits aside for requests to published models that enter the
// cluster through this node, and settles their usage.
//
// A Meter proposes one command at a time: a batch with all usage and all requests for holds
// since the batch before. A batch has a number within the node's session, so that a retry
// is counted once. A hold covers the estimates of many requests; most requests need no
// command of their own before they go to the engine. It is a lease: a node that is cut off
// stops admitting requests from it before the state releases it.
//
// It is not for prices or balances, which are the state's, and it knows nothing of
// answers: the caller reads the engine's figures.
package meter
