// Package auth makes and checks credentials: API keys, passwords, access
// tokens, refresh tokens and stream tokens. It limits the rate of sign-ins.
//
// It is pure code: no HTTP, no state, no Raft. Whether a key is active, a
// user exists or a family of refresh tokens was revoked is looked up by package
// api in the state; this package says whether a text can be what it claims.
//
// Rules: a checksum or a length is checked before anything is looked up;
// secrets are compared in constant time; the state gets hashes, never secrets;
// what fails says that it is not valid and never why, so nothing can be probed;
// everything that costs memory or time on a stranger's word has a named limit.
package auth
