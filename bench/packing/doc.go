// Package packing measures how much of a cluster's GPUs a placement policy can
// give away before it has to refuse: Berth's own and the published ones, on
// the same pods in the same order.
//
// The protocol is that of Weng et al., "Beware of Fragmentation: Scheduling
// GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
// 2023), as its artifact runs it. The pods of a trace are shuffled, and more
// are drawn from them until together they ask for 130 % of the GPUs. They
// arrive one by one, are placed at once or lost for good, never leave and
// never move. The nodes stand in a random order, which is fixed for a seed and
// settles equal scores. Beside it stands churn, where pods leave again.
//
// Every placement is entered in an account of the package's own, which refuses
// what a policy gives away twice. Only the decision is timed, together with
// what the policy does to remember it; the account and the metrics are not.
package packing
