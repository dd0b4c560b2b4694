// Package node puts one peer together. It reads the configuration, opens the
// parts (state machine, cluster, devices, executor, logs, blobs, API) and
// connects them by adaptors. While this node leads it does the leader's duties.
//
// The parts do not know one another. Each declares the one or two methods it
// needs in the vocabulary of package compute. The adaptors here, one file per
// part, are the only place where commands of package fsm meet the parts.
//
// It decides nothing about executions, credits or placement: that is the
// business of fsm and scheduler.
package node
