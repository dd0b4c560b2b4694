// Package sweep kills a node at each failpoint in turn, in a cluster of real
// processes under load. After each it checks that no acknowledged change is
// lost and nothing happened twice. Package bench defines the terms.
//
// It needs a binary built with -tags faults, and the requirements of package
// world. A trial arms one failpoint on a node, triggers it, waits until it is
// reached, restarts the node and waits until the cluster is whole. Then it
// checks:
//
//   - Every submit of the trial, repeated with its Idempotency-Key at another
//     node, gives the first answer.
//   - Every execution ends.
//   - The code's marks show that no attempt started twice.
//   - Balances are the grants less the charges.
//
// A point that is not reached fails its trial: a list of points alone proves
// nothing.
package sweep
