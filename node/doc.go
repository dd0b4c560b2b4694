// Package node puts one peer together: it reads the configuration, opens the
// parts (state machine, cluster, devices, executor, logs, blobs, API), adapts
// what each needs of the others, and does the leader's duties while this node
// leads.
//
// The parts do not know one another. Each declares the one or two methods it
// needs in the vocabulary of package compute; the adaptors here, one file per
// part, are the only place where commands of package fsm meet the parts.
//
// It decides nothing about executions, credits or placement: that is the
// business of fsm and scheduler.
package node
