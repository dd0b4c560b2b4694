// Package queue is the queue as the scheduler reads it: its order, and a copy of
// it by equivalence class that is brought up to each view. A class has the
// executions about which the scheduler decides alike while nothing else changes,
// so that a pass decides once for many.
//
// It is not for decisions: it knows no node and no free capacity. It keeps no
// truth either. A Queue that has followed many views walks as a new one does.
//
// Rules: the order depends on the view alone, and everything that a decision
// reads of an execution is part of its class. TestIncrementalPlanIsTheFullOne in
// package scheduler holds both.
package queue
