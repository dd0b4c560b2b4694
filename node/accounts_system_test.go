package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82/webhook"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// shop is a payment provider that has every purchase paid for.
type shop struct {
	*httptest.Server

	secret   string
	sessions chan map[string]any // That were made.
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{secret: "whsec_test", sessions: make(chan map[string]any, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		form, err2 := url.ParseQuery(string(body))
		if err != nil || err2 != nil || r.URL.Path != "/v1/checkout/sessions" {
			http.Error(w, `{"error":{"type":"invalid_request_error"}}`, http.StatusBadRequest)
			return
		}
		meta := map[string]string{}
		for name := range form {
			var key string
			if n, _ := fmt.Sscanf(name, "metadata[%s", &key); n == 1 {
				meta[key[:len(key)-1]] = form.Get(name)
			}
		}
		session := map[string]any{
			"id": "cs_test_1", "object": "checkout.session", "url": "https://pay.example/cs_test_1", "payment_status": "paid",
			"amount_total": json.Number(form.Get("line_items[0][price_data][unit_amount]")), "currency": "eur", "metadata": meta,
		}
		s.sessions <- session
		if err := json.NewEncoder(w).Encode(session); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// report sends the provider's report on a session to a node, and returns the status of
// the answer.
func (s *shop) report(t *testing.T, node string, session map[string]any, secret string) int {
	t.Helper()
	payload, err := json.Marshal(map[string]any{
		"id": "evt_1", "object": "event", "type": "checkout.session.completed", "data": map[string]any{"object": session},
		"padding": strings.Repeat("x", 20<<10), // Reports are larger than other requests without a credential.
	})
	if err != nil {
		t.Fatal(err)
	}
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: payload, Secret: secret, Timestamp: time.Now()})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, node+"/api/v2/external/billing/webhook", bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Stripe-Signature", signed.Header)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestAccounts takes money and identities through followers of one cluster.
func TestAccounts(t *testing.T) {
	t.Parallel() // It mostly waits.
	r, s, idp := newReceiver(t), newShop(t), newIssuer(t)
	dir := t.TempDir()
	files := map[string]string{"key": "sk_test", "secret": s.secret, "oidc": "device-secret"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) {
		cfg.Callbacks.Allow, cfg.Callbacks.CAFile = []string{"127.0.0.1/32"}, r.file
		cfg.Payments.Provider, cfg.Payments.URL = "stripe", s.URL
		cfg.Accounts.SignUp, cfg.Log.AuditFile = true, filepath.Join(dir, cfg.Name+".jsonl")
		cfg.OIDC.Issuer, cfg.OIDC.ClientID, cfg.OIDC.ClientSecretFile = idp.url, "device", filepath.Join(dir, "oidc")
		cfg.OIDC.SignUp = true
		cfg.Payments.KeyFile, cfg.Payments.WebhookSecretFile = filepath.Join(dir, "key"), filepath.Join(dir, "secret")
	})
	account := c.MustAccount("acme")
	t.Run("budgets", func(t *testing.T) { tryBudgets(t, c, account, r) })
	t.Run("purchase", func(t *testing.T) { tryPurchase(t, c, account, s) })
	t.Run("sign-up", func(t *testing.T) { trySignUp(t, c) })
	t.Run("identity provider", func(t *testing.T) { tryIdentities(t, c, idp) })
	t.Run("revocation", func(t *testing.T) { tryRevocation(t, c, account) })
	t.Run("audit", func(t *testing.T) { tryAudit(t, c, account) })
	t.Run("audit export", func(t *testing.T) { tryAuditExport(t, c, account) })
	t.Run("root token", func(t *testing.T) { tryRootToken(t, c) })
}

// tryBudgets limits a key through a follower, and uses up a budget whose URL is notified.
func tryBudgets(t *testing.T, c *nodetest.Cluster, owner nodetest.Account, r *receiver) {
	api := nodetest.MustClient(t, owner.Key, c.Follower().URL())
	key, err := api.CreateKeyWith(t.Context(), owner.Slug, wire.NewKey{Name: "limited", MaxCredits: 20_000})
	if err != nil || key.MaxCredits == nil || *key.MaxCredits != 20_000 {
		t.Fatalf("got %+v, %v", key, err)
	}
	limited := nodetest.MustClient(t, key.PlaintextKey, c.Leader().URL())
	if _, err := limited.Submit(t.Context(), client.Start{Code: "1", ExecutionType: "t4", Timeout: 600}); client.CodeOf(err) != "ceiling_reached" {
		t.Errorf("beyond the ceiling of the key: %v", err)
	}
	budget := wire.NewBudget{MaxCredits: 1, CallbackURL: r.URL + "/budget"}
	if _, err := api.SetBudget(t.Context(), owner.Slug, budget); err != nil {
		t.Fatal(err)
	}
	started, err := limited.Submit(t.Context(), client.Start{Code: "import time; time.sleep(0.1)", ExecutionType: "cpu", Timeout: 60})
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	nodetest.Eventually(t, endWait, "the report of the budget", func() bool { return len(r.ids("/budget")) > 0 })
	var alert wire.BudgetAlert
	r.mu.Lock()
	err = json.Unmarshal(r.sent["/budget"].body, &alert)
	r.mu.Unlock()
	if err != nil || alert.Event != "budget.reached" || alert.Level != 100 || alert.ExecutionID == nil || *alert.ExecutionID != started.ExecutionID {
		t.Errorf("the report is %+v, %v", alert, err)
	}
	if shown, err := api.Callbacks(t.Context(), started.ExecutionID); err != nil || len(shown) > 0 {
		t.Errorf("the execution shows the URL of the budget: %+v, %v", shown, err)
	}
	budgets, err := nodetest.MustClient(t, owner.Key, c.Leader().URL()).Budgets(t.Context(), owner.Slug)
	if err != nil || len(budgets) != 2 || budgets[0].Charged != *e.Billed || budgets[1].Charged != *e.Billed {
		t.Errorf("budgets are %+v, %v; billed %v", budgets, err, e.Billed)
	}
	if err := api.RemoveBudget(t.Context(), owner.Slug, "organization"); err != nil {
		t.Error(err)
	}
}

// tryPurchase buys credits through one follower. Their payment is reported to two nodes
// and adds them once.
func tryPurchase(t *testing.T, c *nodetest.Cluster, owner nodetest.Account, s *shop) {
	api := nodetest.MustClient(t, owner.Key, c.Follower().URL())
	before, err := api.Credits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	session, err := api.Checkout(t.Context(), 12_500_000)
	if err != nil || session.URL != "https://pay.example/cs_test_1" {
		t.Fatalf("got %+v, %v", session, err)
	}
	made := <-s.sessions
	if status := s.report(t, c.Follower().URL(), made, "whsec_forged"); status != http.StatusBadRequest {
		t.Errorf("a forged report: %d", status)
	}
	for _, n := range c.Nodes {
		if status := s.report(t, n.URL(), made, s.secret); status != http.StatusOK {
			t.Errorf("the report to %s: %d", n.Config.Name, status)
		}
	}
	after, err := api.Credits(t.Context())
	if err != nil || after.Remaining-before.Remaining != 12_500_000 || after.Purchased != 12_500_000 {
		t.Errorf("before %+v, after %+v, %v", before, after, err)
	}
	mustBalance(t, api)
}

// tryAudit reads what the tests before did, as an owner and as the operator.
func tryAudit(t *testing.T, c *nodetest.Cluster, owner nodetest.Account) {
	follower := c.Follower().URL()
	lines, err := nodetest.MustClient(t, owner.Key, follower).Audit(t.Context(), owner.Slug, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]wire.AuditLine{}
	for _, l := range lines {
		seen[l.Action] = l
	}
	made := seen["key.create"]
	if made.Actor != owner.Email || made.IP == nil || *made.IP != "127.0.0.1" || made.RequestID == nil || made.Index == 0 {
		t.Errorf("the line of the key is %+v", made)
	}
	for _, action := range []string{"login", "budget.set", "budget.remove", "credits.purchase"} {
		if _, ok := seen[action]; !ok {
			t.Errorf("%s is not in the trail: %v", action, lines)
		}
	}
	root := nodetest.MustClient(t, c.RootToken, follower)
	for _, slug := range []string{"", owner.Slug} {
		if check, err := root.VerifyAudit(t.Context(), slug); err != nil || !check.Valid || check.Lines == 0 {
			t.Errorf("trail of %q: %+v, %v", slug, check, err)
		}
	}
	cluster, err := root.AdminAudit(t.Context(), "", 0, 1000)
	if err != nil || len(cluster) == 0 || cluster[len(cluster)-1].Seq != 1 {
		t.Errorf("the cluster's trail is %+v, %v", cluster, err)
	}
	member := mustMember(t, c, owner)
	if _, err := nodetest.MustClient(t, member, follower).Audit(t.Context(), owner.Slug, 0, 1); client.CodeOf(err) != "role_too_low" {
		t.Errorf("a member reads the trail: %v", err)
	}
}

// tryAuditExport has every server export what the API answers of a trail.
func tryAuditExport(t *testing.T, c *nodetest.Cluster, owner nodetest.Account) {
	lines, err := nodetest.MustClient(t, owner.Key, c.Follower().URL()).Audit(t.Context(), owner.Slug, 0, 1000)
	if err != nil || len(lines) == 0 {
		t.Fatal(err)
	}
	for _, n := range c.Servers() {
		var missing []string
		nodetest.Eventually(t, endWait, n.Config.Name+" to export the trail", func() bool {
			data, err := os.ReadFile(n.Config.Log.AuditFile)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			missing = nil
			for _, l := range lines {
				if !bytes.Contains(data, []byte(`"hash":"`+l.Hash+`"`)) {
					missing = append(missing, l.Action)
				}
			}
			return len(missing) == 0
		})
	}
}

// mustMember returns the access token of a new member of an organization.
func mustMember(t *testing.T, c *nodetest.Cluster, owner nodetest.Account) string {
	t.Helper()
	root := nodetest.MustClient(t, c.RootToken, c.Leader().URL())
	made, err := root.CreateUser(t.Context(), wire.NewUser{Email: "member@example.com", OrgSlug: owner.Slug, Role: compute.OrgMember.String()})
	if err != nil {
		t.Fatal(err)
	}
	session, err := root.WithToken("").Login(t.Context(), made.Email, made.Password)
	if err != nil {
		t.Fatal(err)
	}
	return session.AccessToken
}

// issuer is an identity provider with the users of its example.
type issuer struct {
	*storage.Storage

	url string
}

// newIssuer starts an identity provider.
func newIssuer(t *testing.T) *issuer {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{url: "http://localhost:" + port}
	i.Storage = storage.NewStorageWithClients(storage.NewUserStore(i.url), map[string]*storage.Client{
		"device": storage.DeviceClient("device", "device-secret"),
	})
	server := httptest.NewUnstartedServer(exampleop.SetupServer(i.url, i.Storage, nil, false, op.WithAllowInsecure()))
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return i
}

// trySignUp makes an account through a follower, which works on every node at once.
func trySignUp(t *testing.T, c *nodetest.Cluster) {
	api := nodetest.MustClient(t, "", c.Follower().URL())
	in := wire.SignUp{Email: "Guest@example.com", Password: "a long password", OrgName: "Guest & Co."}
	session, err := api.SignUp(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		orgs, err := nodetest.MustClient(t, session.AccessToken, n.URL()).Orgs(t.Context())
		if err != nil || len(orgs) != 1 || orgs[0].Slug != "guest-co" || orgs[0].Role != compute.OrgOwner {
			t.Errorf("on %s: %+v, %v", n.Config.Name, orgs, err)
		}
	}
	if _, err := api.SignUp(t.Context(), in); client.CodeOf(err) != "email_taken" {
		t.Errorf("a second time: %v", err)
	}
	in.Email = "second@example.com"
	second, err := api.SignUp(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if orgs, err := api.WithToken(second.AccessToken).Orgs(t.Context()); err != nil || len(orgs) != 1 || orgs[0].Slug == "guest-co" {
		t.Errorf("the second organization of that name: %+v, %v", orgs, err)
	}
}

// tryIdentities signs a person in twice at a real provider, through two nodes, as one
// user. A user with the same verified address is that person.
func tryIdentities(t *testing.T, c *nodetest.Cluster, idp *issuer) {
	signIn := func(n *nodetest.Node, subject string) (wire.Session, error) {
		api := nodetest.MustClient(t, "", n.URL())
		code, err := api.Device(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.DeviceLogin(t.Context(), code.Device); client.CodeOf(err) != "authorization_pending" {
			t.Errorf("before the approval: %v", err)
		}
		if err := idp.CompleteDeviceAuthorization(t.Context(), code.User, subject); err != nil {
			t.Fatal(err)
		}
		return api.DeviceLogin(t.Context(), code.Device)
	}
	first, err := signIn(c.Follower(), "id1")
	if err != nil || first.Email != "test-user@zitadel.ch" {
		t.Fatalf("got %+v, %v", first, err)
	}
	again, err := signIn(c.Leader(), "id1")
	if err != nil || again.UserID != first.UserID {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	root := nodetest.MustClient(t, c.RootToken, c.Leader().URL())
	known, err := root.CreateUser(t.Context(), wire.NewUser{Email: "test-user2@zitadel.ch", OrgSlug: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	linked, err := signIn(c.Follower(), "id2")
	if err != nil || linked.UserID != known.UserID {
		t.Errorf("who has an account: %+v, %v; want %s", linked, err, known.UserID)
	}
	if _, err := root.DisableUser(t.Context(), known.UserID, true); err != nil {
		t.Fatal(err)
	}
	if _, err := signIn(c.Follower(), "id2"); client.CodeOf(err) != "bad_login" {
		t.Errorf("a disabled user: %v", err)
	}
}

// tryRevocation uses a key on every node while it is revoked through another, several
// times. A request that begins after the revocation was answered is refused everywhere.
func tryRevocation(t *testing.T, c *nodetest.Cluster, owner nodetest.Account) {
	const rounds = 3
	for round := range rounds {
		by := nodetest.MustClient(t, owner.Key, c.Nodes[round%len(c.Nodes)].URL())
		key, err := by.CreateKey(t.Context(), owner.Slug, "raced")
		if err != nil {
			t.Fatal(err)
		}
		var revoked atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		used := make(chan struct{}, 2*len(c.Nodes))
		var users sync.WaitGroup
		use := func(name string, ask func() (served, refused bool)) {
			users.Go(func() {
				for first := true; ctx.Err() == nil; first = false {
					dead := revoked.Load()
					switch served, refused := ask(); {
					case served && dead:
						t.Errorf("%s serves a key after its revocation", name)
						return
					case refused:
						return
					}
					if first {
						used <- struct{}{}
					}
				}
			})
		}
		for _, n := range c.Nodes {
			api := nodetest.MustClient(t, key.PlaintextKey, n.URL())
			use(n.Config.Name, func() (served, refused bool) {
				_, err := api.Credits(ctx)
				return err == nil, client.CodeOf(err) == "unauthenticated"
			})
			use(n.Config.Name+" to models", func() (served, refused bool) {
				answer, _ := mustAsk(t, http.DefaultClient, http.MethodPost, n.URL()+"/openai/v1/chat/completions", key.PlaintextKey,
					strings.NewReader(`{"model":"none"}`))
				return answer.StatusCode == http.StatusNotFound, answer.StatusCode == http.StatusUnauthorized
			})
		}
		for range 2 * len(c.Nodes) {
			<-used
		}
		if err := by.DeleteKey(t.Context(), owner.Slug, key.ID); err != nil {
			t.Fatal(err)
		}
		revoked.Store(true)
		for _, n := range c.Nodes {
			if _, err := nodetest.MustClient(t, key.PlaintextKey, n.URL()).Credits(t.Context()); client.CodeOf(err) != "unauthenticated" {
				t.Errorf("%s after the revocation: %v", n.Config.Name, err)
			}
		}
		users.Wait()
		stop()
	}
}
