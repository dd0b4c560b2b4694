// Package billing has the endpoints about credits: the history and the ledger of an
// organization, its usage, monthly statements, budgets and purchases, the price list,
// and the machine types with their prices.
//
// It is not for what moves credits: holds and charges are posted to the ledger when
// commands are applied, and package node asks the payment provider.
//
// Rules. Credits are integers; only shown figures such as hours are not. An answer
// that is computed from many records takes a turn of its organization
// (handler.Core.Scans).
package billing
