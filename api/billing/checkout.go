package billing

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// checkouts serves purchases of credits.
type checkouts struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *checkouts) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodPost, Path: edge.Root + "/billing/checkout", Tag: "Billing", Need: edge.NeedCaller,
			Summary: "Start a purchase of credits: answers the payment provider's page. 503 where the operator has none.",
			Body:    edge.Type[wire.Checkout](), Reply: edge.Type[wire.CheckoutSession](), Handle: g.checkout,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/billing/webhook", Tag: "Billing", Raw: true, Report: true,
			Summary: "For the payment provider: reports what was paid, with its signature.",
			Body:    edge.Type[wire.PaymentReport](), Reply: edge.Type[wire.Message](), Handle: g.report,
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
	if g.Config.Payments == nil {
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
	session, err := g.Config.Payments.Checkout(r.Ctx, order)
	if err != nil {
		return nil, err
	}
	return wire.CheckoutSession{URL: session.URL, ID: session.ID}, nil
}

// returnURL returns where people go after a purchase that names no URL. It does not depend
// on the node that answers: the provider takes a repeat with another URL for another order.
func (g *checkouts) returnURL(r *edge.Request) string {
	base := g.Config.PublicURL
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
	if g.Config.Payments == nil {
		return nil, errNoPayments()
	}
	purchase, about, err := g.Config.Payments.Confirm(r.Raw(), r.Signature)
	if compute.CodeOf(err) == compute.CodeConflict { // It is the provider's, about something paid.
		g.logUnadded(r, purchase, err)
	}
	if err != nil {
		return nil, err
	}
	if about {
		if err := g.ReadView(r); err != nil {
			return nil, err
		}
		_, err := g.Propose(r, command.RecordPurchase{Purchase: purchase})
		if code := compute.CodeOf(err); code == compute.CodeNotFound || code == compute.CodeInvalid {
			g.logUnadded(r, purchase, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return wire.Message{Message: "The report is taken."}, nil
}

// logUnadded logs a payment that adds no credits. The provider's repeats will not help: only
// people can give the money back.
func (g *checkouts) logUnadded(r *edge.Request, p compute.Purchase, err error) {
	r.Log(g.Log).Error("paid credits not added: refund the payment at the provider", "org", p.Org, "detail",
		fmt.Sprintf("%s credits of checkout %s, payment %s", p.Amount, p.ID, p.Payment), "err", err)
}
