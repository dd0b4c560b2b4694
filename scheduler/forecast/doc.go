// Package forecast answers questions about the future of the queue. EstimateQueue
// simulates when queued executions start, WhatIf plans the queue on other
// nodes, and Defragment finds the cheapest moves that make room for one
// execution.
//
// It is not for decisions: nothing here places, moves or stops an execution.
// The answers are shown to users and recorded to calibrate later estimates.
//
// Rules: everything is a pure function of the view, so that every node gives
// the same answer. Random draws are hashes of identifiers. Every search has a
// limit and ends with its context.
package forecast
