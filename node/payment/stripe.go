package payment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v82"
	"github.com/stripe/stripe-go/v82/webhook"

	"berth/compute"
)

// callTimeout bounds a call of the provider.
const callTimeout = 20 * time.Second

// Names in the metadata of a checkout session.
const (
	metaCluster = "berth_cluster"
	metaOrg     = "berth_org"
	metaCredits = "berth_microcredits"
	metaTotal   = "berth_total"
	metaIn      = "berth_currency"
)

// Config has the settings of a Stripe.
type Config struct {
	Key           string // The secret API key.
	WebhookSecret string // Secret of the endpoint that gets reports.
	Currency      string // Such as eur.
	UnitAmount    int64  // Price of a credit, in the smallest unit of Currency.
	URL           string // Base of the provider's API; "" for the public one.
	Cluster       func() compute.UUID
	Client        *http.Client // Nil for one of its own.
}

// Stripe sells credits through Stripe.
type Stripe struct {
	cfg    Config
	client *stripe.Client
}

// New returns a Stripe.
func New(cfg Config) *Stripe {
	backend := &stripe.BackendConfig{
		HTTPClient: cfg.Client, LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
		EnableTelemetry: stripe.Bool(false),
	}
	if backend.HTTPClient == nil {
		backend.HTTPClient = &http.Client{Timeout: callTimeout}
	}
	if cfg.URL != "" {
		backend.URL = stripe.String(cfg.URL)
	}
	backends := stripe.NewBackendsWithConfig(backend)
	return &Stripe{cfg: cfg, client: stripe.NewClient(cfg.Key, stripe.WithBackends(backends))}
}

// errProvider refuses a purchase while the provider does not answer.
func errProvider(err error) error {
	e := compute.Errorf(compute.CodeUnavailable, "The payment provider does not answer: try again.").
		Named("payment_provider").Retry(5 * time.Second)
	e.Err = err
	return e
}

// errRepeat refuses an order whose request was used for another one, or is being answered.
func errRepeat(e *stripe.Error) error {
	if e.HTTPStatusCode == http.StatusConflict {
		return compute.Errorf(compute.CodeConflict,
			"The first request with this idempotency key is not answered yet: try again.").
			Named("idempotency_in_flight").Retry(time.Second)
	}
	return compute.Errorf(compute.CodeConflict, "This idempotency key was used with another purchase: use a new one.").
		Named("idempotency_key_reused")
}

// Checkout starts a purchase. The same order gets the same session.
func (s *Stripe) Checkout(ctx context.Context, o compute.Order) (compute.Checkout, error) {
	total, ok := s.total(o.Amount)
	if !ok {
		return compute.Checkout{}, compute.Errorf(compute.CodeInvalid,
			"An amount that is bought is above 0, and at most %s credits.", s.most()).Named("amount")
	}
	params := &stripe.CheckoutSessionCreateParams{
		Mode:              stripe.String(string(stripe.CheckoutSessionModePayment)),
		SuccessURL:        stripe.String(o.SuccessURL),
		CancelURL:         stripe.String(o.CancelURL),
		ClientReferenceID: stripe.String(o.Org.String()),
		LineItems: []*stripe.CheckoutSessionCreateLineItemParams{{
			Quantity: stripe.Int64(1),
			PriceData: &stripe.CheckoutSessionCreateLineItemPriceDataParams{
				Currency: stripe.String(s.cfg.Currency), UnitAmount: stripe.Int64(total),
				ProductData: &stripe.CheckoutSessionCreateLineItemPriceDataProductDataParams{
					Name: stripe.String(o.Amount.String() + " credits for " + o.Name),
				},
			},
		}},
	}
	if o.Email != "" {
		params.CustomerEmail = stripe.String(o.Email)
	}
	for name, value := range map[string]string{
		metaCluster: s.cfg.Cluster().String(), metaOrg: o.Org.String(),
		metaCredits: strconv.FormatInt(int64(o.Amount), 10), metaTotal: strconv.FormatInt(total, 10),
		metaIn: s.cfg.Currency,
	} {
		params.AddMetadata(name, value)
	}
	params.SetIdempotencyKey("berth-" + o.Request)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	session, err := s.client.V1CheckoutSessions.Create(ctx, params)
	e, ok := errors.AsType[*stripe.Error](err)
	if ok && (e.Type == stripe.ErrorTypeIdempotency || e.HTTPStatusCode == http.StatusConflict) {
		return compute.Checkout{}, errRepeat(e)
	}
	if ok && e.HTTPStatusCode < http.StatusInternalServerError &&
		e.HTTPStatusCode != http.StatusTooManyRequests {
		refused := compute.Errorf(compute.CodeInternal, "The payment provider refused the purchase.")
		refused.Err = fmt.Errorf("create checkout session: %d %s", e.HTTPStatusCode, e.Code)
		return compute.Checkout{}, refused
	}
	if err != nil {
		return compute.Checkout{}, errProvider(err)
	}
	return compute.Checkout{ID: session.ID, URL: session.URL}, nil
}

// maxTotal is Stripe's own limit of a payment, in the smallest unit of its currency.
const maxTotal = 99_999_999

// total returns the price of credits, rounded up. It reports false if that is not a
// valid amount.
func (s *Stripe) total(amount compute.Credits) (int64, bool) {
	hi, lo := bits.Mul64(uint64(amount), uint64(s.cfg.UnitAmount))
	if amount <= 0 || hi >= uint64(compute.Credit) {
		return 0, false
	}
	whole, rest := bits.Div64(hi, lo, uint64(compute.Credit))
	if rest > 0 {
		whole++
	}
	return int64(min(whole, maxTotal+1)), whole >= 1 && whole <= maxTotal
}

// most returns the most credits that can be bought at once.
func (s *Stripe) most() compute.Credits {
	return maxTotal * compute.Credit / compute.Credits(s.cfg.UnitAmount)
}

// errSignature refuses a report that is not the provider's.
func errSignature() error {
	return compute.Errorf(compute.CodeInvalid,
		"The signature of the payment provider is missing or wrong.").Named("bad_signature")
}

// errOld refuses a report that somebody may have kept, or that a wrong clock makes old.
func errOld() error {
	return compute.Errorf(compute.CodeInvalid, "The report was signed more than %s ago by the clock of this node: "+
		"check the clock. The provider repeats its reports.", webhook.DefaultTolerance).Named("report_too_old")
}

func errReport(why string) error {
	return compute.Errorf(compute.CodeInvalid, "%s", why).Named("bad_report")
}

// Confirm returns the purchase that a report of the provider is about. It reports false
// for reports about anything but a purchase of this cluster that is paid for. If another
// amount was paid the error is a conflict, beside the purchase.
func (s *Stripe) Confirm(body []byte, signature string) (compute.Purchase, bool, error) {
	event, err := webhook.ConstructEventWithOptions(body, signature, s.cfg.WebhookSecret,
		webhook.ConstructEventOptions{IgnoreAPIVersionMismatch: true})
	if errors.Is(err, webhook.ErrTooOld) {
		return compute.Purchase{}, false, errOld()
	}
	if err != nil {
		return compute.Purchase{}, false, errSignature()
	}
	switch event.Type {
	case stripe.EventTypeCheckoutSessionCompleted, stripe.EventTypeCheckoutSessionAsyncPaymentSucceeded:
	default:
		return compute.Purchase{}, false, nil
	}
	var session stripe.CheckoutSession
	if event.Data == nil || json.Unmarshal(event.Data.Raw, &session) != nil {
		return compute.Purchase{}, false, errReport("The report has no checkout session.")
	}
	meta := session.Metadata
	if meta[metaCluster] != s.cfg.Cluster().String() || session.PaymentStatus != stripe.CheckoutSessionPaymentStatusPaid {
		return compute.Purchase{}, false, nil // Another cluster's, or not paid yet: another report follows.
	}
	org, err := compute.ParseOrgID(meta[metaOrg])
	amount, err2 := strconv.ParseInt(meta[metaCredits], 10, 64)
	total, err3 := strconv.ParseInt(meta[metaTotal], 10, 64)
	if errors.Join(err, err2, err3) != nil || amount <= 0 || session.ID == "" {
		return compute.Purchase{}, false, errReport("The report is not about a purchase of credits.")
	}
	asked := cmp.Or(meta[metaIn], s.cfg.Currency) // The operator may have changed the setting since.
	p := compute.Purchase{
		Org: org, ID: session.ID, Amount: compute.Credits(amount),
		Paid: session.AmountTotal, Currency: string(session.Currency),
	}
	if session.PaymentIntent != nil {
		p.Payment = session.PaymentIntent.ID
	}
	if session.Customer != nil {
		p.Customer = session.Customer.ID
	}
	if session.AmountTotal < total || !strings.EqualFold(string(session.Currency), asked) {
		return p, false, compute.Errorf(compute.CodeConflict,
			"%d %s were paid, not %d %s.", session.AmountTotal, session.Currency, total, asked).Named("bad_report")
	}
	return p, true, nil
}
