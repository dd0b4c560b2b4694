// Package secrets keeps the cluster's master key and seals with it what may
// stand in the replicated state as ciphertext only.
//
// The master key is a file of its own on every server (DataDir/keys/master.key,
// mode 0600), made on the first node and handed to the others when they join.
// It is never in Raft, in a snapshot, in a backup or in a log, and never on a
// worker. The cryptography is tink's: AES-256-GCM to seal, HKDF-SHA256 to
// derive keys with a purpose. Every caller passes as associated data what the
// sealed bytes belong to, so that they cannot be moved elsewhere.
//
// It is not a store: who owns a secret and where its ciphertext is, is a matter
// of package fsm.
package secrets
