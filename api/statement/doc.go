// Package statement sums an organization's ledger up by month, and prints the result
// as PDF. It reads nothing but ledger lines, so a statement agrees with the ledger.
package statement
