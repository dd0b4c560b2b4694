package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// Payments sells credits through a payment provider.
type Payments interface {
	// Checkout starts a purchase. The same order gets the same one.
	Checkout(ctx context.Context, o compute.Order) (compute.Checkout, error)
	// Confirm returns the purchase that a report of the provider is about. It reports
	// false for other reports, and fails for those that are not the provider's.
	Confirm(body []byte, signature string) (compute.Purchase, bool, error)
}

// checkouts serves purchases of credits.
type checkouts struct {
	*core
}

// routes returns the routes of the group.
func (g *checkouts) routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodPost, Path: root + "/billing/checkout", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "Start a purchase of credits: answers the payment provider's page. 503 where the operator has none.",
			Body:    of[wire.Checkout](), Reply: of[wire.CheckoutSession](), Handle: g.checkout,
		},
		{
			Method: http.MethodPost, Path: root + "/billing/webhook", Tag: "Billing", Raw: true, Report: true,
			Summary: "For the payment provider: reports what was paid, with its signature.",
			Body:    of[wire.PaymentReport](), Reply: of[wire.Message](), Handle: g.report,
		},
	}
}

// errNoPayments refuses what needs a payment provider.
func errNoPayments() error {
	return compute.Errorf(compute.CodeUnavailable,
		"This cluster sells no credits: the operator sets payments.provider.").Named("payments_unavailable")
}

// checkout starts a purchase.
func (g *checkouts) checkout(r *edge.Request) (any, error) {
	if g.cfg.Payments == nil {
		return nil, errNoPayments()
	}
	if err := r.View.AllowsAccounts(); err != nil {
		return nil, err
	}
	in := r.Body.(*wire.Checkout)
	order := compute.Order{
		Org: r.Caller.Org.ID, Name: r.Caller.Org.Name, Email: r.Caller.Org.BillingEmail, Amount: in.Amount,
		SuccessURL: in.SuccessURL, CancelURL: in.CancelURL, Request: g.Op(r).ID.String(),
	}
	back := g.returnURL(r)
	order.SuccessURL, order.CancelURL = cmp.Or(order.SuccessURL, back), cmp.Or(order.CancelURL, back)
	session, err := g.cfg.Payments.Checkout(r.Ctx, order)
	if err != nil {
		return nil, err
	}
	return wire.CheckoutSession{URL: session.URL, ID: session.ID}, nil
}

// returnURL returns where people go after a purchase that names no URL. It does not depend
// on the node that answers: the provider takes a repeat with another URL for another order.
func (g *checkouts) returnURL(r *edge.Request) string {
	base := g.cfg.PublicURL
	if base == "" {
		base = r.Base
		var first *compute.Node
		for n := range r.View.Nodes() {
			serves := n.Role == compute.RoleServer && n.API != "" && n.State != compute.NodeDown
			if serves && (first == nil || n.ID.UUID.String() < first.ID.UUID.String()) {
				first, base = n, n.API
			}
		}
	}
	return strings.TrimRight(base, "/") + "/"
}

// report adds the credits of a purchase that is paid for. The provider repeats a report
// until it is answered with success; the state adds each purchase once.
func (g *checkouts) report(r *edge.Request) (any, error) {
	if g.cfg.Payments == nil {
		return nil, errNoPayments()
	}
	purchase, about, err := g.cfg.Payments.Confirm(r.Raw(), r.Signature)
	if err != nil {
		return nil, err
	}
	if about {
		if err := g.ReadView(r); err != nil {
			return nil, err
		}
		_, err := g.Propose(r, fsm.RecordPurchase{Purchase: purchase})
		if code := compute.CodeOf(err); code == compute.CodeNotFound || code == compute.CodeInvalid {
			// The provider's repeats will not help: only people can give the money back.
			g.log.Error("paid credits not added: refund the payment at the provider", "org", purchase.Org, "detail",
				fmt.Sprintf("%s credits of checkout %s, payment %s", purchase.Amount, purchase.ID, purchase.Payment), "err", err)
		}
		if err != nil {
			return nil, err
		}
	}
	return wire.Message{Message: "The report is taken."}, nil
}
