// Package objects stores the content of objects: it cuts a stream into chunks,
// encrypts each with the key of the organization's bucket, makes them durable as blobs
// of several nodes, and reads them back.
//
// A chunk is encrypted deterministically, so that the same bytes of one organization
// are one blob, and its name is the hash of the ciphertext: a read returns the bytes that
// were written, or an error. An object of one chunk needs nothing else. For others a
// manifest, also a blob, lists the chunks and has the encrypted metadata of the object.
// It has the synthetic IVs of chunks too, with which decryption authenticates a chunk on
// this node's disk as its hash would.
// Nothing is published here: that is one command of package fsm, after which the blobs
// are live. Until then they are safe from collection because they are young. An upload
// that lasts too long for that records its chunks as parts.
//
// The package knows no request and no credential. Memory is bounded by a number of
// chunks that all uploads share, and another one of those that are read ahead; an
// organization has at most a half of them. Each read has one chunk more.
package objects
