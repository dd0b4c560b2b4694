// Package raftconf expresses Raft's configuration, the list of servers and
// voters, in Berth's types: server ids are node ids.
//
// It is not for changing the configuration; package membership does that. The
// functions are pure and read only their arguments.
package raftconf
