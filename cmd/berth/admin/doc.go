// Package admin has the commands of an operator, berth admin: nodes, join
// tokens, users, credits, quotas, the brake, Raft, backups.
//
// Each command has its own file. Most call the API with the root token or an
// operator's key. Those of a stopped server (snapshot restore, raft recover,
// rejoin and skip) change its data directory through package node/repair, and
// print what they would do unless --yes is given.
package admin
