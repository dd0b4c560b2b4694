// Package payment sells credits through a payment provider: Stripe.
//
// A Stripe starts purchases (Checkout) and reads the provider's reports (Confirm). A
// purchase names its organization and its credits in the provider's metadata, which
// comes back with the report; nothing is kept here. The state adds the credits of each
// checkout session once.
//
// It is not for prices of work, invoices or refunds: the operator makes refunds at the
// provider.
//
// Rules:
//
//   - A report counts only with the provider's signature, and only if what was paid is
//     what the purchase asked for, in this cluster.
//   - Secrets come from files, and errors never hold them.
package payment
