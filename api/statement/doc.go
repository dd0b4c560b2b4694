// Package statement sums an organization's ledger up by month, and prints the result
// as PDF. It reads nothing but ledger lines: a statement says what the ledger says.
package statement
