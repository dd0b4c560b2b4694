package identity

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/oauth2"

	"berth/compute"
)

// callback is where the provider sends a browser that has signed in.
const callback = "http://localhost:9999/auth/callback"

// issuer is a provider that this test starts, with its accounts.
type issuer struct {
	*storage.Storage

	url string
}

// newIssuer starts a provider with a client for devices and one for browsers.
func newIssuer(t *testing.T) *issuer {
	t.Helper()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // The provider logs there.
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{url: "http://" + l.Addr().String()}
	i.url = strings.Replace(i.url, "127.0.0.1", "localhost", 1)
	i.Storage = storage.NewStorageWithClients(storage.NewUserStore(i.url), map[string]*storage.Client{
		"device": storage.DeviceClient("device", "device-secret"),
		"web":    storage.WebClient("web", "web-secret", callback),
	})
	server := httptest.NewUnstartedServer(exampleop.SetupServer(i.url, i.Storage, nil, false, op.WithAllowInsecure()))
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return i
}

func (i *issuer) client(id string, domains ...string) *Provider {
	return New(Config{Issuer: i.url, ClientID: id, ClientSecret: id + "-secret", Domains: domains})
}

// detail returns the code of a refusal.
func detail(err error) string {
	if e, ok := errors.AsType[*compute.Error](err); ok {
		return e.Detail
	}
	return ""
}

// TestDevice signs in with a device code: not before it is approved, and once.
func TestDevice(t *testing.T) {
	i := newIssuer(t)
	p := i.client("device")
	code, err := p.Device(t.Context())
	if err != nil || code.User == "" || code.Device == "" || !strings.HasPrefix(code.URL, i.url) {
		t.Fatalf("got %+v, %v", code, err)
	}
	if _, err := p.Poll(t.Context(), code.Device); detail(err) != "authorization_pending" {
		t.Errorf("before it is approved: %v", err)
	}
	if err := i.CompleteDeviceAuthorization(t.Context(), code.User, "id1"); err != nil {
		t.Fatal(err)
	}
	who, err := p.Poll(t.Context(), code.Device)
	want := compute.Identity{Subject: i.url + " id1", Email: "test-user@zitadel.ch", EmailVerified: true, Name: "Test User"}
	if err != nil || who != want {
		t.Errorf("got %+v, %v; want %+v", who, err, want)
	}
	denied, err := p.Device(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := i.DenyDeviceAuthorization(t.Context(), denied.User); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Poll(t.Context(), denied.Device); detail(err) != "access_denied" {
		t.Errorf("a device that was denied: %v", err)
	}
	if _, err := p.Poll(t.Context(), "made-up"); err == nil {
		t.Error("a made-up device code signs in")
	}
	if _, err := i.client("device", "example.com").Poll(t.Context(), code.Device); err == nil {
		t.Error("another domain's address signs in")
	}
}

// browse signs in at the provider as a browser would, and returns the code.
func (i *issuer) browse(t *testing.T, authorize, challenge, nonce string) string {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	var code string
	browser := &http.Client{Jar: jar, CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(req.URL.String(), callback) {
			code = req.URL.Query().Get("code")
			return http.ErrUseLastResponse
		}
		return nil
	}}
	query := url.Values{
		"client_id": {"web"}, "redirect_uri": {callback}, "response_type": {"code"}, "scope": {"openid profile email"},
		"code_challenge": {challenge}, "code_challenge_method": {"S256"}, "nonce": {nonce}, "state": {"s"},
	}
	fetch := func(method, target string, form url.Values) string {
		req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(page)
	}
	page := fetch(http.MethodGet, authorize+"?"+query.Encode(), nil)
	id := regexp.MustCompile(`name="id" value="([^"]+)"`).FindStringSubmatch(page)
	if id == nil {
		t.Fatalf("the provider's page: %s", page)
	}
	fetch(http.MethodPost, i.url+"/login/username", url.Values{
		"id": {id[1]}, "username": {"test-user@localhost"}, "password": {"verysecure"},
	})
	if code == "" {
		t.Fatal("the provider gave no code")
	}
	return code
}

// TestBrowser signs in with an authorization code, which counts once and only with the
// verifier and the nonce of its request.
func TestBrowser(t *testing.T) {
	i := newIssuer(t)
	p := i.client("web")
	e, err := p.Endpoints(t.Context())
	if err != nil || !strings.HasPrefix(e.AuthorizationURL, i.url) || e.ClientID != "web" {
		t.Fatalf("got %+v, %v", e, err)
	}
	verifier := oauth2.GenerateVerifier()
	challenge := oauth2.S256ChallengeFromVerifier(verifier)
	code := i.browse(t, e.AuthorizationURL, challenge, "n1")
	who, err := p.Exchange(t.Context(), code, verifier, callback, "n1")
	if err != nil || who.Subject != i.url+" id1" || who.Email != "test-user@zitadel.ch" {
		t.Errorf("got %+v, %v", who, err)
	}
	if _, err := p.Exchange(t.Context(), code, verifier, callback, "n1"); compute.CodeOf(err) != compute.CodeUnauthenticated {
		t.Errorf("the code a second time: %v", err)
	}
	for name, try := range map[string]struct{ verifier, nonce string }{
		"another verifier": {oauth2.GenerateVerifier(), "n1"}, "another nonce": {verifier, "n2"},
	} {
		_, err := p.Exchange(t.Context(), i.browse(t, e.AuthorizationURL, challenge, "n1"), try.verifier, callback, try.nonce)
		if compute.CodeOf(err) != compute.CodeUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = i.client("web", "example.com").Exchange(t.Context(), i.browse(t, e.AuthorizationURL, challenge, "n1"), verifier, callback, "n1")
	if detail(err) != "domain_not_allowed" {
		t.Errorf("an address of another domain: %v", err)
	}
}

// resigned changes the claims of ID tokens on the way from the provider, with the provider's
// signature.
type resigned struct {
	*issuer

	change func(claims map[string]any)
}

// RoundTrip implements http.RoundTripper.
func (r resigned) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost {
		return resp, err
	}
	defer resp.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if text, ok := answer["id_token"].(string); ok {
		if answer["id_token"], err = r.sign(req.Context(), text); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(answer)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return resp, err
}

// sign returns a token with changed claims.
func (r resigned) sign(ctx context.Context, text string) (string, error) {
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
	if err != nil {
		return "", err
	}
	claims := make(map[string]any)
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", err
	}
	r.change(claims)
	if payload, err = json.Marshal(claims); err != nil {
		return "", err
	}
	key, err := r.SigningKey(ctx)
	if err != nil {
		return "", err
	}
	signer, err := op.SignerFromKey(key)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// TestAuthorizedParty signs in with ID tokens for several audiences and for another client.
func TestAuthorizedParty(t *testing.T) {
	i := newIssuer(t)
	const absent = "absent"
	for name, try := range map[string]struct {
		audience any
		party    any
		ok       bool
	}{
		"as it comes":                     {nil, nil, true},
		"no party":                        {nil, absent, true},
		"several audiences":               {[]string{"device", "other"}, "device", true},
		"several audiences without party": {[]string{"device", "other"}, absent, false},
		"another party":                   {nil, "other", false},
		"another party of several":        {[]string{"other", "device"}, "other", false},
		"an empty party":                  {nil, "", false},
		"a party that is no text":         {nil, 1, false},
		"other audiences":                 {[]string{"other", "third"}, "device", false},
	} {
		p := i.client("device")
		p.cfg.Client = &http.Client{Transport: resigned{i, func(claims map[string]any) {
			if try.audience != nil {
				claims["aud"] = try.audience
			}
			if try.party == absent {
				delete(claims, "azp")
			} else if try.party != nil {
				claims["azp"] = try.party
			}
		}}}
		code, err := p.Device(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := i.CompleteDeviceAuthorization(t.Context(), code.User, "id1"); err != nil {
			t.Fatal(err)
		}
		_, err = p.Poll(t.Context(), code.Device)
		if try.ok && err != nil || !try.ok && compute.CodeOf(err) != compute.CodeUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFailuresAreLogged holds that the log says why sign-ins fail whatever the person does, and
// that strangers cannot fill it.
func TestFailuresAreLogged(t *testing.T) {
	i := newIssuer(t)
	var log bytes.Buffer
	now := time.Now()
	p := i.client("device")
	p.cfg.Log, p.cfg.Now = slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now }
	claims := map[string]any{"aud": []string{"other"}}
	p.cfg.Client = &http.Client{Transport: resigned{i, func(of map[string]any) { maps.Copy(of, claims) }}}
	fail := func(want string) {
		t.Helper()
		log.Reset()
		code, err := p.Device(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Poll(t.Context(), code.Device); detail(err) != "authorization_pending" || log.Len() > 0 {
			t.Errorf("before it is approved: %v, logged %s", err, &log)
		}
		if err := i.CompleteDeviceAuthorization(t.Context(), code.User, "id1"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Poll(t.Context(), code.Device); detail(err) != "bad_login" {
			t.Errorf("got %v", err)
		}
		if !strings.Contains(log.String(), want) || strings.Contains(log.String(), code.Device) || want == "" && log.Len() > 0 {
			t.Errorf("logged %s, want %q", &log, want)
		}
	}
	fail("expected audience")
	fail("")
	now = now.Add(noteEvery)
	claims = map[string]any{"exp": now.Add(-10 * time.Minute).Unix()}
	fail("token is expired")
}

// TestProviderIsDown holds that a sign-in can be repeated later.
func TestProviderIsDown(t *testing.T) {
	p := New(Config{Issuer: "http://127.0.0.1:1", ClientID: "x"})
	if _, err := p.Device(t.Context()); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("got %v", err)
	}
}
