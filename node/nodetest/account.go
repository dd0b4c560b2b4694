package nodetest

import (
	"os"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
)

// Account is a user with an organization and an API key.
type Account struct {
	Email, Password, Slug, Key string
}

// MustClient returns a client that speaks to addrs with the token.
func MustClient(tb testing.TB, token string, addrs ...string) *client.Client {
	tb.Helper()
	c, err := client.New(client.Config{Addrs: addrs, Token: token, RetryFor: readyWait})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// MustJoinToken has a cluster make a join token for a server.
func MustJoinToken(tb testing.TB, url, rootToken string) string {
	tb.Helper()
	return mustToken(tb, url, rootToken, compute.RoleServer.String())
}

func mustToken(tb testing.TB, url, rootToken, role string) string {
	tb.Helper()
	want := wire.NewJoinToken{Role: role, TTL: 600, Uses: 1}
	admin := MustClient(tb, rootToken, url)
	token, err := admin.CreateJoinToken(tb.Context(), want)
	if err != nil && client.CodeOf(err) == "" {
		// The client does not repeat this call when its answer is lost, because only
		// that has the token. Here a second token does no harm.
		tb.Logf("create join token again after: %v", err)
		token, err = admin.CreateJoinToken(tb.Context(), want)
	}
	if err != nil {
		tb.Fatalf("create join token: %v", err)
	}
	return token.Token
}

// mustAccount makes a user and signs in to get an API key. None of it may be
// in a log.
func mustAccount(tb testing.TB, out *output, url, rootToken, name string) Account {
	tb.Helper()
	a := Account{Email: name + "@example.com", Password: "correct horse battery " + name, Slug: name}
	admin := MustClient(tb, rootToken, url)
	user := wire.NewUser{Email: a.Email, Password: a.Password, OrgSlug: a.Slug, OrgName: name}
	if _, err := admin.CreateUser(tb.Context(), user); err != nil {
		tb.Fatalf("create user: %v", err)
	}
	session, err := admin.WithToken("").Login(tb.Context(), a.Email, a.Password)
	if err != nil {
		tb.Fatalf("sign in: %v", err)
	}
	key, err := admin.WithToken(session.AccessToken).CreateKey(tb.Context(), a.Slug, "test")
	if err != nil {
		tb.Fatalf("create key: %v", err)
	}
	a.Key = key.PlaintextKey
	out.hide(a.Password, a.Key, session.AccessToken, session.RefreshToken)
	return a
}

// mustReadFile returns a file's content once it is there and not empty.
func mustReadFile(tb testing.TB, path string, limit time.Duration) string {
	tb.Helper()
	var text string
	Eventually(tb, limit, path, func() bool {
		data, err := os.ReadFile(path)
		text = string(data)
		return err == nil && text != ""
	})
	return text
}
