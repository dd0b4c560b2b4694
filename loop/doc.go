// Package loop waits: for a time, for a tick, for a signal, for a condition, for a
// place among costly computations. Every wait ends with its context.
//
// It is for loops that are level-triggered: they wake, read the whole state and
// act on the difference. It is not for retries of one call, which wait longer each
// time (github.com/cenkalti/backoff), nor for leases, which count time on
// package boottime.
package loop
