// Package statetest makes small replicated states for tests of the packages below
// node. Commands are applied without Raft, each as an entry of its own.
//
// Only tests import it. Clusters of real nodes are in node/nodetest.
package statetest
