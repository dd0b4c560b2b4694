// Package membership plans the voters: which server enters, is promoted, demoted
// or removed next, and whether a removal would cost the quorum.
//
// It is not for carrying changes out; package cluster measures the servers and
// changes Raft's configuration.
//
// Rules: a plan decides from its fields alone, without clock, chance or I/O. No
// change leaves fewer voters that keep up than a quorum of the configuration
// that it makes.
package membership
