// Package faults injects faults into clusters of real berth processes under
// client load and checks that acknowledged operations hold. Package bench
// defines the terms.
//
// One seed determines a run: the schedule of faults and the requests of every
// client. It does not determine the interleaving of processes and the kernel. A
// violation that a seed has shown therefore shows again within a few tries, but
// not in the same microsecond.
//
// Three parts share one world (package world):
//
//   - Nemeses inject a fault, hold it and repair it.
//   - Workloads are clients that record each try and its answer in a history.
//   - Checks run at the end, with every fault repaired. They search the
//     histories (package check) and verify the invariants: replicas have equal
//     states, ledgers are exact, no code starts twice, no GPU has two owners,
//     and no acknowledged operation is lost.
//
// A harness that finds nothing proves nothing: Controls runs programs with
// planted bugs and requires that each is found.
package faults
