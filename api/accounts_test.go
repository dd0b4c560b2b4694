package api_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/execution"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// fakePayments sells credits that nobody pays for. A report is the purchase's org, with
// any padding.
type fakePayments struct {
	mu     sync.Mutex
	orders map[string]compute.Order // By request, of which each belongs to one order.
}

func (p *fakePayments) Checkout(_ context.Context, o compute.Order) (compute.Checkout, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first, known := p.orders[o.Request]; known && first != o {
		return compute.Checkout{}, compute.Errorf(compute.CodeConflict, "another order").Named("idempotency_key_reused")
	}
	p.orders[o.Request] = o
	return compute.Checkout{ID: "cs_" + o.Request, URL: "https://pay.example/" + o.Amount.String()}, nil
}

func (*fakePayments) Confirm(body []byte, signature string) (compute.Purchase, bool, error) {
	org, err := compute.ParseOrgID(strings.TrimSpace(string(body)))
	p := compute.Purchase{Org: org, ID: "cs_1", Amount: compute.Credit, Customer: "cus_1", Paid: 150, Currency: "eur", Payment: "pi_1"}
	switch signature {
	case "good":
		return p, err == nil, nil
	case "other currency":
		return p, false, compute.Errorf(compute.CodeConflict, "150 usd were paid, not 150 eur.").Named("bad_report")
	}
	return compute.Purchase{}, false, nil
}

// TestUnaddedPaymentsAreLogged holds that the log names what to refund.
func TestUnaddedPaymentsAreLogged(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(c *handler.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w.upgrade()
	org := w.org("bob-lab").String()
	if res := w.send("POST", "/billing/webhook", "", org, "Stripe-Signature", "other currency"); res.status != http.StatusConflict {
		t.Errorf("got %d %s", res.status, res.body)
	}
	for _, want := range []string{"refund", org, "checkout cs_1", "payment pi_1", "150 usd were paid"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in %s", want, log.String())
		}
	}
}

// TestCheckout starts purchases, and takes the report of one twice.
func TestCheckout(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	var session, again wire.CheckoutSession
	w.mustDo("POST", "/billing/checkout", w.bobKey, `{"credits_amount":2.5}`, &session, "Idempotency-Key", "k")
	w.mustDo("POST", "/billing/checkout", w.bobKey, `{"credits_amount":2.5}`, &again, "Idempotency-Key", "k")
	if session.URL != "https://pay.example/2.5" || session != again {
		t.Errorf("got %+v, then %+v", session, again)
	}
	for _, host := range []string{"a", "b"} { // Another node has another name.
		body := `{"credits_amount":2.5}`
		res := w.raw(fmt.Sprintf("POST %s/billing/checkout HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", root, host, w.bobKey, len(body), body))
		if res.status != http.StatusOK || !strings.Contains(string(res.body), session.ID) {
			t.Errorf("through %s: %d %s", host, res.status, res.body)
		}
	}
	w.want(409, "idempotency_key_reused", "POST", "/billing/checkout", w.bobKey, `{"credits_amount":3}`, "Idempotency-Key", "k")
	org := w.org("bob-lab").String()
	_, worker := w.newWorker()
	for name, node := range map[string]*world{"server": w, "worker": worker} {
		for _, size := range []int{0, edge.InlineBody, edge.ReportBody - len(org)} {
			report := org + strings.Repeat(" ", size)
			if res := node.send("POST", "/billing/webhook", "", report, "Stripe-Signature", "good"); res.status != http.StatusOK {
				t.Fatalf("%s: a report of %d bytes: %d %s", name, len(report), res.status, res.body)
			}
		}
	}
	var credits wire.Credits
	if w.mustDo("GET", "/billing/credits", w.bobKey, nil, &credits); credits.Purchased != compute.Credit {
		t.Errorf("purchased are %s", credits.Purchased)
	}
	var statements wire.Invoices
	w.mustDo("GET", "/billing/invoices", w.bobKey, nil, &statements)
	if one := statements.Invoices[0]; one.Amount == nil || *one.Amount != 1.5 || *one.Currency != "eur" || *one.PaymentIntentID != "pi_1" {
		t.Errorf("the month's statement is %+v", one)
	}
	var details wire.CreditsDetails
	if w.mustDo("GET", "/billing/credits/details", w.bobKey, nil, &details); details.PaymentCustomerID != "cus_1" {
		t.Errorf("the details are %+v", details)
	}
	if res := w.send("POST", "/billing/checkout", w.bobKey, `{"credits_amount":1,"success_url":"javascript:x"}`); res.status != 422 {
		t.Errorf("a script as URL: %d %s", res.status, res.body)
	}
	none := newWorld(t, func(c *handler.Config) { c.Payments = nil })
	for _, path := range []string{"/billing/checkout", "/billing/webhook"} {
		if res := none.send("POST", path, none.bobKey, `{"credits_amount":1}`); res.status != http.StatusServiceUnavailable {
			t.Errorf("%s without a provider: %d %s", path, res.status, res.body)
		}
	}
}

// TestPurchaseOfNobody checks that a payment for an organization that is gone is not
// taken silently: the provider gets an error, and the log names what to refund.
func TestPurchaseOfNobody(t *testing.T) {
	var log lockedBuffer
	w := newWorld(t, func(c *handler.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w.upgrade()
	gone := compute.OrgID{UUID: compute.UUID{9}}
	w.want(404, "org_unknown", "POST", "/billing/webhook", "", gone.String(), "Stripe-Signature", "good")
	if said := log.String(); !strings.Contains(said, "refund the payment") || !strings.Contains(said, gone.String()) {
		t.Errorf("the log says %q", said)
	}
}

// TestBudgets sets, shows and removes budgets, and refuses bad ones.
func TestBudgets(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	const path = "/orgs/bob-lab/budgets"
	var key wire.MintedKey
	w.mustDo("POST", "/orgs/bob-lab/api-keys", w.bobKey, `{"name":"small","max_credits":0.000001}`, &key)
	if key.MaxCredits == nil || *key.MaxCredits != 1 {
		t.Errorf("the key is %+v", key)
	}
	var set wire.Budget
	w.mustDo("PUT", path, w.bobKey, `{"max_credits":9,"period":"month","callback_url":"https://example.com/b"}`, &set)
	if set.Scope != "organization" || set.Period != "month" || set.Enforce || set.CallbackURL == nil {
		t.Errorf("set is %+v", set)
	}
	if res := w.send("POST", "/execution/streaming/start", key.PlaintextKey, `{"code":"1"}`); res.status != 403 ||
		!strings.Contains(string(res.body), "ceiling_reached") {
		t.Errorf("beyond the ceiling: %d %s", res.status, res.body)
	}
	for _, body := range []string{
		`{}`, `{"max_credits":0}`, `{"max_credits":1,"period":"year"}`, `{"max_credits":1,"callback_url":"http://example.com"}`,
		`{"max_credits":1,"callback_url":"https://example.com/${{ secrets.X }}"}`,
		`{"max_credits":1,"key_id":"` + key.ID.String() + `","user_id":"` + key.ID.String() + `"}`,
	} {
		if res := w.send("PUT", path, w.bobKey, body); res.status != 422 {
			t.Errorf("%s: %d %s", body, res.status, res.body)
		}
	}
	var all []wire.Budget
	w.mustDo("GET", path, w.bobKey, nil, &all)
	if len(all) != 2 || all[1].KeyID == nil || *all[1].KeyID != key.ID || !all[1].Enforce {
		t.Errorf("budgets are %+v", all)
	}
	for _, id := range []string{"organization", key.ID.String()} {
		w.mustDo("DELETE", path+"/"+id, w.bobKey, nil, nil)
		if res := w.send("DELETE", path+"/"+id, w.bobKey, nil); res.status != 404 {
			t.Errorf("%s a second time: %d", id, res.status)
		}
	}
}

// TestReportsOfBudgets checks what is sent about a budget that an execution reaches, and
// about one that tokens reach.
func TestReportsOfBudgets(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	view, started := w.machine.View(), w.startStream().ExecutionID
	e, _ := w.machine.View().AnyExecution(started)
	alert := &compute.BudgetAlert{Level: 80, Charged: 8, MaxCredits: 10}
	for name, of := range map[string]struct {
		view     *fsm.View
		callback compute.Callback
		want     string
	}{
		"execution":                {w.machine.View(), compute.Callback{Execution: started, Alert: alert}, `"execution_id":"` + started.String() + `"`},
		"tokens":                   {view, compute.Callback{Org: e.Org, Alert: alert}, `"execution_id":null`},
		"an execution not known":   {view, compute.Callback{Execution: started, Alert: alert}, ""},
		"no organization":          {view, compute.Callback{Org: compute.OrgID{UUID: compute.UUID{9}}, Alert: alert}, ""},
		"whose organization it is": {view, compute.Callback{Org: e.Org, Alert: alert}, `"org_id":"` + e.Org.String() + `"`},
	} {
		body, ok := execution.CallbackBody(of.view, &of.callback)
		if ok != (of.want != "") || !strings.Contains(string(body), of.want) {
			t.Errorf("%s: %t %s", name, ok, body)
		}
	}
}

// TestDeedsAreAudited checks that acts of operators which change no state are recorded
// with their actor and address, also when they are repeated under one key.
func TestDeedsAreAudited(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	for range 2 {
		w.mustDo("GET", "/admin/raft/snapshot", rootToken, nil, nil, "Idempotency-Key", "again")
	}
	w.want(403, "", "GET", "/admin/raft/snapshot", w.bobKey, nil)
	w.send("POST", "/admin/raft/transfer", rootToken, `{}`)
	var lines []wire.AuditLine
	w.mustDo("GET", "/admin/audit", rootToken, nil, &lines)
	var actions []string
	for _, l := range lines[:3] {
		actions = append(actions, l.Action)
		if l.Actor != "root" || l.IP == nil || l.RequestID == nil {
			t.Errorf("the line is %+v", l)
		}
	}
	if !slices.Equal(actions, []string{"leader.transfer", "backup.save", "backup.save"}) {
		t.Errorf("the trail begins with %v", actions)
	}
}

// TestEndsOfLoginsAreAudited checks that a logout, once, and the use of a spent token are listed
// with the address and the request of the client.
func TestEndsOfLoginsAreAudited(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	one, other := w.login("bob"), w.login("bob")
	spent := map[string]any{"refresh_token": one.RefreshToken}
	w.mustDo("POST", "/auth/refresh", "", spent, nil)
	w.pass(time.Minute)
	w.want(401, "", "POST", "/auth/refresh", "", spent)
	for range 2 {
		w.mustDo("POST", "/auth/logout", "", map[string]any{"refresh_token": other.RefreshToken}, nil)
	}
	var lines []wire.AuditLine
	w.mustDo("GET", "/orgs/bob-lab/audit", w.bobKey, nil, &lines)
	var actions []string
	for _, l := range lines {
		actions = append(actions, l.Action)
		if l.IP == nil || l.RequestID == nil || l.UserID == nil || *l.UserID != one.UserID {
			t.Errorf("the line is %+v", l)
		}
	}
	if !slices.Equal(actions, []string{"logout", "login.token_reused", "login", "login"}) {
		t.Errorf("the trail is %v", actions)
	}
}

// TestAuditPages reads a trail in pages, which have every line once.
func TestAuditPages(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	for range 7 {
		w.mustDo("POST", "/environment-variables", w.bobKey, `{"name":"A","value":"hidden-value"}`, nil)
	}
	w.pass(time.Second)
	var seen []uint64
	for cursor := ""; ; {
		var lines []wire.AuditLine
		res := w.mustDo("GET", "/orgs/bob-lab/audit?limit=3"+cursor, w.bobKey, nil, &lines)
		if strings.Contains(string(res.body), "hidden-value") {
			t.Fatalf("the trail has the value: %s", res.body)
		}
		for _, l := range lines {
			seen = append(seen, l.Seq)
		}
		next := res.header.Get("X-Next-Cursor")
		if next == "" {
			break
		}
		cursor = "&cursor=" + next
	}
	if !slices.Equal(seen, []uint64{7, 6, 5, 4, 3, 2, 1}) {
		t.Errorf("the lines are %v", seen)
	}
	far := w.want(422, "", "GET", "/orgs/bob-lab/audit?offset=10001", w.bobKey, nil)
	if !strings.Contains(string(far.body), "less than or equal to 10000: go on with cursor") {
		t.Errorf("beyond the last offset: %s", far.body)
	}
}

// fakeIdentities vouches for whom a device code names: an address, or ! and an address
// that is not verified.
type fakeIdentities struct{}

func (fakeIdentities) Endpoints(context.Context) (compute.IdentityProvider, error) {
	return compute.IdentityProvider{Issuer: "https://id.example", ClientID: "berth", AuthorizationURL: "https://id.example/a", Device: true}, nil
}

func (fakeIdentities) Device(context.Context) (compute.DeviceCode, error) {
	return compute.DeviceCode{Device: "d", User: "ABCD", URL: "https://id.example/device", Interval: 5}, nil
}

func (fakeIdentities) Poll(_ context.Context, device string) (compute.Identity, error) {
	email, unverified := strings.CutPrefix(device, "!")
	subject, now, renamed := strings.Cut(email, " is now ")
	if renamed {
		return compute.Identity{
			Subject: "https://id.example " + subject, Email: now, Name: "Renamed Person", EmailVerified: !unverified,
		}, nil
	}
	if !strings.Contains(email, "@") {
		email += "@id.example"
	}
	return compute.Identity{Subject: "https://id.example " + email, Email: email, EmailVerified: !unverified}, nil
}

func (f fakeIdentities) Exchange(ctx context.Context, code, _, _, _ string) (compute.Identity, error) {
	return f.Poll(ctx, code)
}

// TestSignUp makes accounts, and refuses what is bad, taken or not allowed.
func TestSignUp(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	for body, want := range map[string]int{
		`{}`: 422, `{"email":"x","password":"long enough"}`: 422, `{"email":"a@example.com","password":"short"}`: 422,
		`{"email":"BOB@example.com","password":"long enough"}`: 409,
	} {
		if res := w.send("POST", "/auth/signup", "", body); res.status != want {
			t.Errorf("%s: %d %s", body, res.status, res.body)
		}
	}
	var session wire.Session
	w.mustDo("POST", "/auth/signup", "", `{"email":"new@example.com","password":"long enough"}`, &session)
	var orgs []wire.Org
	w.mustDo("GET", "/orgs", session.AccessToken, nil, &orgs)
	if len(orgs) != 1 || orgs[0].Slug != "new" || orgs[0].Role != compute.OrgOwner {
		t.Errorf("the organizations are %+v", orgs)
	}
	if res := w.send("GET", "/admin/users", session.AccessToken, nil); res.status != 403 {
		t.Errorf("who signed up is an operator: %d", res.status)
	}
	off := newWorld(t, func(c *handler.Config) { c.Accounts = handler.Accounts{} })
	off.upgrade()
	if res := off.send("POST", "/auth/signup", "", `{"email":"a@example.com","password":"long enough"}`); res.status != 403 {
		t.Errorf("where it is off: %d %s", res.status, res.body)
	}
	if res := off.send("POST", "/auth/oidc/token", "", `{"device_code":"bob@example.com"}`); res.status != 404 {
		t.Errorf("without a provider: %d %s", res.status, res.body)
	}
}

// TestSignUpsAtOnce makes accounts whose organizations get the same name on two nodes at
// once: nobody chose a slug, so nobody is refused for one.
func TestSignUpsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	w.saw = func(cmd command.Command) {
		late, ok := cmd.(command.SignUp)
		if !ok {
			return
		}
		w.saw = nil
		late.Op.ID.UUID, late.User.ID.UUID, late.Org.ID.UUID = compute.UUID{1}, compute.UUID{2}, compute.UUID{3}
		late.User.Email = "first@example.com"
		frame, err := command.Encode(late)
		w.ok(err)
		w.index++
		for _, result := range w.machine.ApplyFrames(w.index, frame) {
			if result.Refusal != nil {
				t.Error(result.Refusal)
			}
		}
	}
	var session wire.Session
	w.mustDo("POST", "/auth/signup", "", `{"email":"second@example.com","password":"long enough","org_name":"Vision"}`, &session)
	var orgs []wire.Org
	w.mustDo("GET", "/orgs", session.AccessToken, nil, &orgs)
	if len(orgs) != 1 || orgs[0].Name != "Vision" || !strings.HasPrefix(orgs[0].Slug, "vision-") {
		t.Errorf("the organizations are %+v", orgs)
	}
}

// TestIdentities signs people in whom the provider vouches for: as the user they were,
// else as the one with their verified address, else as a new one.
func TestIdentities(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	signIn := func(device string) (session wire.Session, code string) {
		t.Helper()
		res := w.send("POST", "/auth/oidc/token", "", map[string]any{"device_code": device})
		if res.status == http.StatusOK {
			w.mustDo("POST", "/auth/oidc/token", "", map[string]any{"device_code": device}, &session)
			return session, ""
		}
		return session, decodeObject(t, res.body)["code"].(string)
	}
	if _, code := signIn("!bob@example.com"); code != "email_not_verified" {
		t.Errorf("an address that is not verified: %q", code)
	}
	bob, _ := signIn("bob@example.com")
	known, _ := w.machine.View().UserByEmail("bob@example.com")
	if bob.UserID != known.ID {
		t.Errorf("bob is %+v", bob)
	}
	if again, code := signIn("!bob@example.com"); code != "" || again.UserID != known.ID {
		t.Errorf("once linked the address does not matter: %+v %q", again, code)
	}
	if _, code := signIn("ada@example.com"); code != "operator_password" {
		t.Errorf("an operator: %q", code)
	}
	fresh, code := signIn("eve@id.example")
	if code != "" || fresh.Email != "eve@id.example" {
		t.Errorf("a new person: %+v %q", fresh, code)
	}
	if res := w.send("POST", "/auth/login", "", `{"email":"eve@id.example","password":"x"}`); res.status != 401 {
		t.Errorf("without a password one signs in with one: %d", res.status)
	}
	for _, body := range []string{
		`{}`, `{"device_code":"a","code":"b"}`, `{"code":"b"}`,
		`{"code":"b","code_verifier":"` + strings.Repeat("v", 43) + `"}`,
		`{"code":"b","code_verifier":"` + strings.Repeat("v", 43) + `","nonce":"n","redirect_uri":"x"}`,
	} {
		if res := w.send("POST", "/auth/oidc/token", "", body); res.status != 422 {
			t.Errorf("%s: %d %s", body, res.status, res.body)
		}
	}
	closed := newWorld(t, func(c *handler.Config) { c.Accounts.IdentitySignUp = false })
	closed.upgrade()
	if res := closed.send("POST", "/auth/oidc/token", "", `{"device_code":"eve@id.example"}`); res.status != 403 {
		t.Errorf("where only the operator makes accounts: %d %s", res.status, res.body)
	}
}

// TestRenamedPerson signs in with another address and name at the identity provider than
// before: the user has them, unless another user has the address or it is not verified.
func TestRenamedPerson(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	signIn := func(device string) wire.Session {
		t.Helper()
		var s wire.Session
		w.mustDo("POST", "/auth/oidc/token", "", map[string]any{"device_code": device}, &s)
		return s
	}
	first := signIn("ada@id.example")
	for device, email := range map[string]string{
		"!ada@id.example is now forged@id.example": "ada@id.example",
		"ada@id.example is now bob@example.com":    "ada@id.example",
	} {
		if s := signIn(device); s.UserID != first.UserID || s.Email != email {
			t.Errorf("%s: %+v", device, s)
		}
	}
	if s := signIn("ada@id.example is now lovelace@id.example"); s.UserID != first.UserID || s.Email != "lovelace@id.example" {
		t.Errorf("got %+v", s)
	}
	if u, _ := w.machine.View().User(first.UserID); u.FullName != "Renamed Person" {
		t.Errorf("the user is %+v", u)
	}
	w.mustDo("GET", "/user/status", first.AccessToken, nil, nil) // Earlier logins go on.
	if s := signIn("ada@id.example is now ada@id.example"); s.UserID != first.UserID || s.Email != "ada@id.example" {
		t.Errorf("back: %+v", s)
	}
}

// TestIdentityTakesAnUnprovenAccountOver signs up with the address of somebody else, who
// then signs in with the identity provider: only that person has the account from then on.
func TestIdentityTakesAnUnprovenAccountOver(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	const signUp = `{"email":"victim@example.com","password":"long enough"}`
	var squatter, owner wire.Session
	w.mustDo("POST", "/auth/signup", "", signUp, &squatter)
	var key wire.MintedUserKey
	w.mustDo("POST", "/auth/api-keys", squatter.AccessToken, `{"key_name":"back door"}`, &key)
	w.mustDo("POST", "/auth/oidc/token", "", map[string]any{"device_code": "victim@example.com"}, &owner)
	if owner.UserID != squatter.UserID {
		t.Errorf("the accounts are %s and %s", squatter.UserID, owner.UserID)
	}
	w.want(401, "", "POST", "/auth/login", "", signUp)
	w.want(401, "", "POST", "/auth/refresh", "", map[string]any{"refresh_token": squatter.RefreshToken})
	for _, bearer := range []string{squatter.AccessToken, key.Value} {
		w.want(401, "", "GET", "/user/status", bearer, nil)
	}
	w.mustDo("GET", "/user/status", owner.AccessToken, nil, nil)
}

// TestLoginWhileThePasswordChanges changes a password between its check and the record of
// the login: the login is refused.
func TestLoginWhileThePasswordChanges(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	bob, _ := w.machine.View().UserByEmail("bob@example.com")
	w.saw = func(cmd command.Command) {
		if _, login := cmd.(command.StoreRefresh); !login {
			return
		}
		change, err := command.Encode(command.SetUser{Actor: command.Actor{Root: true}, User: bob.ID, Password: "another"})
		w.ok(err)
		w.index++
		w.machine.ApplyFrames(w.index, change)
	}
	w.want(401, "bad_login", "POST", "/auth/login", "", map[string]any{"email": bob.Email, "password": password})
}

// TestResetWhileAPasswordConfirms resets a password between its check and the record of the
// change or the deletion that it confirms: both are refused, and the reset stays.
func TestResetWhileAPasswordConfirms(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	bob, _ := w.machine.View().UserByEmail("bob@example.com")
	for _, test := range []struct{ method, path, body string }{
		{"POST", "/user/password", fmt.Sprintf(`{"old_password":%q,"new_password":"of the thief"}`, password)},
		{"DELETE", "/user/delete", fmt.Sprintf(`{"password":%q}`, password)},
	} {
		reset := bob.PasswordHash + " reset"
		w.saw = func(command.Command) {
			w.saw = nil
			change, err := command.Encode(command.SetUser{Actor: command.Actor{Root: true}, User: bob.ID, Password: reset})
			w.ok(err)
			w.index++
			w.machine.ApplyFrames(w.index, change)
		}
		w.want(403, "wrong_password", test.method, test.path, w.bobKey, test.body)
		if u, _ := w.machine.View().User(bob.ID); u.PasswordHash != reset {
			t.Errorf("%s: the password is %q, not that of the reset", test.path, u.PasswordHash)
		}
		w.must(command.SetUser{Actor: command.Actor{Root: true}, User: bob.ID, Password: bob.PasswordHash})
	}
}

// TestDeletionWithoutAPassword deletes an account of the identity provider: a recent login
// takes the place of the password that it has not.
func TestDeletionWithoutAPassword(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	signIn := func() (session wire.Session) {
		w.mustDo("POST", "/auth/oidc/token", "", map[string]any{"device_code": "eve@id.example"}, &session)
		return session
	}
	old := signIn()
	var key wire.MintedUserKey
	w.mustDo("POST", "/auth/api-keys", old.AccessToken, `{"key_name":"laptop"}`, &key)
	w.want(403, "login_too_old", "DELETE", "/user/delete", key.Value, `{}`)
	w.mu.Lock()
	w.now = w.now.Add(11 * time.Minute)
	w.mu.Unlock()
	var renewed wire.Session
	w.mustDo("POST", "/auth/refresh", "", map[string]any{"refresh_token": old.RefreshToken}, &renewed)
	w.want(403, "login_too_old", "DELETE", "/user/delete", renewed.AccessToken, `{}`)
	w.want(422, "", "DELETE", "/user/delete", w.bobKey, `{}`)
	w.mustDo("DELETE", "/user/delete", signIn().AccessToken, `{}`, nil)
	w.want(401, "", "GET", "/user/status", renewed.AccessToken, nil)
}
