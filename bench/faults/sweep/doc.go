// Package sweep ends a node at every failpoint, one after the other, in a
// cluster of real processes under work, and checks after each that nothing which
// was acknowledged is lost and nothing was done twice.
//
// It needs a binary that is built with -tags faults, and everything that package
// world needs. A trial arms one point on the node where it is reached, brings
// about what reaches it, waits until it was reached, starts the node again and
// waits until the cluster is whole. Then every submit of the trial is repeated
// with its Idempotency-Key, at another node, and must give the first answer;
// every execution must end; what its code wrote must say that no attempt was
// started twice; and balances must be what was granted less what was charged. A
// point that is not reached fails its trial: a list of points proves nothing by
// itself.
package sweep
