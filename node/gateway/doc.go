// Package gateway serves the objects of organizations over the S3 protocol.
//
// The protocol, its signatures and its XML are versitygw's. The package is the backend
// below it: each method reads the state and package objects, and proposes commands, as
// the REST endpoints do. An organization has one bucket, which exists always.
//
// Credentials are made from the master key and not stored. The session token says for
// whom they were made, until when, and is signed. The secret follows from the access
// key. They end with what made them: the API key, the login, the membership or the
// user. Every request checks that again, in the state that it reads.
//
// The package does not authenticate by any other means, and knows no other bucket:
// another organization's does not exist.
package gateway
