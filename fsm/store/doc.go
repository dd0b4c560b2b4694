// Package store holds the tables of the state machine: ordered copy-on-write
// maps, records with the sum of their hashes, indexes, and the packing of
// records that are unlikely to change.
//
// It is not for deciding anything and knows no type of package compute: a
// record is a Go struct with numbered CBOR fields.
//
// Its rules: one goroutine writes to a table and shares it; a shared copy never
// changes, and any number of goroutines read it. Records are immutable: a change
// is a changed copy. What a record hashes to depends on its content alone. How it
// is packed depends on what was packed before it, so packed bytes stay in memory:
// snapshots and hashes use the encoding.
package store
