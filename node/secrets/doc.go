// Package secrets holds the cluster's master key and uses it to seal data that
// may be in the replicated state only as ciphertext.
//
// The master key is a separate file on every server (DataDir/keys/master.key,
// mode 0600). The first node creates it, and the others receive it when they
// join. It is never in Raft, in a snapshot, in a backup or in a log, and never
// on a worker. The cryptography is tink's: AES-256-GCM to seal, HKDF-SHA256 to
// derive keys with a purpose. Every caller passes as associated data what the
// sealed bytes belong to, so that they cannot be moved elsewhere.
//
// The package is not a store. Package fsm knows who owns a secret and where its
// ciphertext is.
package secrets
