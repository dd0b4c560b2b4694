// Package faults breaks clusters of real berth processes while clients work on
// them, and checks that what was acknowledged holds.
//
// A run is one seed: it decides what is broken when and what every client asks
// for. Processes and the kernel are not bound by it, so a seed repeats the
// schedule and the requests, not the interleaving: a violation that a seed has
// shown is found again within a few tries, not in the same microsecond.
//
// Three parts work on one world (package world): nemeses break something, hold
// it and mend it; workloads are clients that write each try with its answer
// into a history; at the end, with everything mended, the history is checked
// (package check) and the invariants are looked at: equal states of all
// replicas, exact ledgers, no start twice, no GPU in two hands, nothing that
// was acknowledged lost.
//
// A harness that finds nothing proves nothing: Controls runs programs with
// planted bugs and demands that each is found.
package faults
