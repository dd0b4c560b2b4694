// Package store holds the tables of the state machine: ordered copy-on-write
// maps, records with the sum of their hashes, indexes, and the packing of
// records that are unlikely to change.
//
// It is not for deciding anything and knows no type of package compute: a
// record is a Go struct with numbered CBOR fields.
//
// Its rules: one goroutine writes to a table and shares it; a shared copy never
// changes, and any number of goroutines read it. Records are immutable: a change
// is a changed copy. The hash of a record depends on its content alone. Its packed
// bytes also depend on the records that were packed before it, so they stay in
// memory: snapshots and hashes use the encoding.
package store
