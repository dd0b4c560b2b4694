// Package ledger stores the ledgers of organizations: lines in a chain of
// hashes. The newest lines are records, older ones are sealed in blocks, which
// take a small part of the memory.
//
// It does not decide which lines are posted, and does not keep the account of an
// organization: package fsm posts, and compares the account with the ledger.
//
// Its rules: a line is never changed and never removed. A sealed block gives
// back the encoding of each line byte for byte. A line whose hash does not follow
// from the previous one keeps its own, so that a broken chain is found and not
// hidden. Reading allocates no decoded line unless the caller asks for one.
package ledger
