// Package trees reads the manifests of file trees, which are blobs, and keeps
// those that were read last.
//
// A manifest never changes, so a cached one is always right. Live returns which
// blobs the manifests of a state need. It says which manifests could not be read:
// nothing may be removed then, because nobody knows what they name.
//
// It knows no state and no storage: its callers hand it hashes and a function
// that returns blobs.
package trees
