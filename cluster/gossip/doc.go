// Package gossip spreads and collects hints about nodes: who is alive, at
// which addresses, and with which inventory. It wraps memberlist and owns the
// gossip keyring.
//
// It is not for decisions. Anyone who holds the gossip key can forge what is
// gossiped, so callers confirm it over an authenticated connection.
//
// Rules: a node that the state does not know, or has removed, is ignored. A
// restart is not a leave. memberlist calls the delegate under its lock, so the
// delegate neither blocks nor calls memberlist.
package gossip
