// Package explain answers questions about scheduling: why an execution waits and
// when it may start (Explainer), and how the scheduler decided at a log entry,
// or would decide on other nodes (History).
//
// Answers are expensive: some build a second state from a snapshot and the log. A
// fair limiter computes one at a time, and organizations take turns.
//
// The package changes nothing. Decisions are computed by packages scheduler and
// forecast.
package explain
