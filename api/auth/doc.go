// Package auth makes and checks credentials: API keys, passwords, access
// tokens, refresh tokens and stream tokens. It limits the rate of sign-ins.
//
// It is pure code: no HTTP, no state, no Raft. It checks whether a text is a
// well-formed, correctly signed credential. Package api looks up in the state
// whether a key is active, a user exists or a family of refresh tokens was
// revoked.
//
// Rules. A checksum or a length is checked before anything is looked up.
// Secrets are compared in constant time. The state gets hashes, never secrets.
// Errors say that a credential is not valid and never why, so nothing can be
// probed. Every use of memory or time that a stranger can cause has a named
// limit.
package auth
