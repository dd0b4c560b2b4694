// Package clock keeps the cluster's time: the time with which leaders stamp
// entries and that Now returns on every node.
//
// It is not for the clocks of machines, which can be wrong and be set; it only
// compares them with the cluster's time and reports a difference.
//
// Rules: each leader takes the time over from the one before and counts it on
// boottime, so that setting a clock changes no lease. The clocks of most
// voters steer it, by at most a tenth of the time that passes. It never goes
// back behind the state's time. docs/adr/0001-clock-frame.md has the reasons.
package clock
