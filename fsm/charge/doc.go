// Package charge says what an execution costs: the charge when it ends, by which rule, and
// how much is held for it before.
//
// It is not for whether anybody can pay, or for ledgers: package fsm has the accounts.
//
// Rules: an amount follows from the record of the execution alone, in whole credits, without a
// float. The rules are listed in docs/operations.md, and a test compares both.
package charge
