package berth_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	berth "berth/sdk/go"
)

// TestFirstContact holds that a cluster which never answers is given up soon, and
// one that answered is not.
func TestFirstContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reachable := false
		transport := fakeWire(func(r *http.Request) (*http.Response, error) {
			if !reachable {
				return nil, errors.New("no route to host")
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})
		c := mustNew(t, berth.Config{
			Addrs: []string{"http://a", "http://b"}, FirstContact: 2 * time.Second, HTTP: &http.Client{Transport: transport},
		})
		began := time.Now()
		_, err := c.Probes.Ready(t.Context())
		e, ok := errors.AsType[*berth.UnreachableError](err)
		if took := time.Since(began); !ok || took > 2*time.Second || !strings.Contains(e.Error(), "http://a, http://b") {
			t.Errorf("after %s: %v", took, err)
		}
		reachable = true
		if _, err := c.Probes.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		reachable = false
		began = time.Now()
		_, err = c.Probes.Ready(t.Context())
		if _, ok := errors.AsType[*berth.UnreachableError](err); ok || time.Since(began) < 20*time.Second {
			t.Errorf("a cluster that had answered is given up after %s: %v", time.Since(began), err)
		}
	})
}

// TestRenew holds that a call and a stream whose token is refused are repeated once
// with a new one.
func TestRenew(t *testing.T) {
	url, _ := mustServe(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer new" {
			answer(401, `{"detail":"expired","code":"unauthenticated"}`)(w, r)
			return
		}
		if strings.Contains(r.URL.Path, "/stream/") {
			answer(200, finished(1, "0"))(w, r)
			return
		}
		answer(200, `{"email":"bea@example.com"}`)(w, r)
	})
	for _, fresh := range []string{"new", "as bad"} {
		var asked []string
		renew := func(_ context.Context, refused string) (string, error) {
			asked = append(asked, refused)
			return fresh, nil
		}
		config := berth.Config{Addrs: []string{url}, Token: "old", Renew: renew}
		c := mustNew(t, config)
		status, err := c.Orgs.UserStatus(t.Context())
		if fresh == "as bad" {
			if berth.CodeOf(err) != "unauthenticated" || len(asked) != 1 {
				t.Errorf("renewed %q, %v", asked, err)
			}
			continue
		}
		if err != nil || status.Email != "bea@example.com" || len(asked) != 1 || asked[0] != "old" {
			t.Errorf("renewed %q, %+v, %v", asked, status, err)
		}
		if _, err := c.Orgs.UserStatus(t.Context()); err != nil || len(asked) != 1 {
			t.Errorf("the new token is not kept: %q, %v", asked, err)
		}
		if got, err := collect(t.Context(), mustNew(t, config), anID, 0); err != nil || len(got) != 1 {
			t.Errorf("the stream has %q, %v", got, err)
		}
	}
}
