// Package packing measures how much of a cluster's GPUs a placement policy can
// allocate before it has to refuse. It compares Berth's policy with published
// ones, on the same pods in the same order.
//
// The protocol is that of Weng et al., "Beware of Fragmentation: Scheduling
// GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023),
// as its artifact runs it. The pods of a trace are shuffled, and more are drawn
// from them until together they request 130 % of the GPUs. They arrive one by
// one, are placed at once or lost for good, never leave and never move. The
// nodes are in a random order that is fixed for a seed and breaks ties. A
// second protocol is churn, where pods leave again.
//
// The package checks every placement against its own accounting, which refuses
// double allocations. Only the decision is timed, together with the policy's
// own bookkeeping; the accounting and the metrics are not.
package packing
