// Package bench groups the packages that measure clusters and those that test
// them under faults. It contains no code.
//
// Four harnesses inject faults: faults and faults/sweep into real processes,
// dst into a simulated cluster, and simulate into a fleet of simulated nodes.
// They share these terms:
//
//   - A fault is one thing broken on purpose. A harness injects it, may hold it
//     for a while, and repairs it.
//   - A nemesis is a kind of fault, as in Jepsen.
//   - A failpoint is a step of the program that can be made to exit or to fail
//     (package fault). A trial arms one failpoint and checks the result.
//   - A workload is one kind of client load. A client repeats an operation in
//     tries; a history records tries and answers.
//   - A check tests an invariant, on histories or on the cluster's state. A
//     violation is the result of a failed check.
//   - A planted bug is built into a program on purpose. A control is a run with
//     a planted bug that some check must find.
//   - A cluster is whole when every node answers and sees all others up. It has
//     recovered when it is whole and accepts writes.
package bench
