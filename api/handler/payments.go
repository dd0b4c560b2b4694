package handler

import (
	"context"

	"berth/compute"
)

// Payments sells credits through a payment provider.
type Payments interface {
	// Checkout starts a purchase. The same order gets the same one.
	Checkout(ctx context.Context, o compute.Order) (compute.Checkout, error)
	// Confirm returns the purchase that a report of the provider is about. It reports
	// false for other reports, and fails for those that are not the provider's.
	Confirm(body []byte, signature string) (compute.Purchase, bool, error)
}
