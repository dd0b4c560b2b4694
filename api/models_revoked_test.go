package api_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// TestRevokedCallersOfModels asks a model through a node that lags behind, while the key is
// deleted, or regenerated, or its maker is removed from the organization. A request that begins
// after that was answered is refused.
func TestRevokedCallersOfModels(t *testing.T) {
	m := newModelWorld(t, edge.ModelLimits{InFlight: 64}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}")
	})
	bob, _ := m.machine.View().UserByEmail("bob@example.com")
	var session wire.Session
	m.mustDo("POST", "/auth/login", "", map[string]any{"email": bob.Email, "password": password}, &session)
	const keys = "/orgs/ada-lab/api-keys"
	for name, revoke := range map[string]func(id string){
		"deleted":     func(id string) { m.mustDo("DELETE", keys+"/"+id, m.adaKey, nil, nil) },
		"regenerated": func(id string) { m.mustDo("POST", keys+"/"+id+"/regenerate", m.adaKey, nil, nil) },
		"toggled off": func(id string) { m.mustDo("PATCH", keys+"/"+id+"/toggle", m.adaKey, nil, nil) },
		"removed": func(string) {
			m.mustDo("DELETE", "/orgs/ada-lab/members/"+bob.ID.String(), m.adaKey, nil, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m.must(command.SetMember{
				Actor: command.Actor{Root: true}, Org: m.org("ada-lab"), User: bob.ID, Role: compute.OrgAdmin,
			})
			key := wire.MintedKey{}
			m.mustDo("POST", keys, session.AccessToken, map[string]any{"name": "raced " + name}, &key, "X-Org-Slug", "ada-lab")
			m.know(func(s *readerState) { s.behind = m.machine.View() })
			defer m.know(func(s *readerState) { s.behind = nil })
			m.race(t, key.PlaintextKey, func() { revoke(key.ID.String()) })
		})
	}
}

// race asks the deployment with a key from several clients while the key is revoked.
func (m *modelWorld) race(t *testing.T, key string, revoke func()) {
	t.Helper()
	const clients = 4
	var revoked atomic.Bool
	var users sync.WaitGroup
	used := make(chan struct{}, clients)
	ask := func() answer {
		return m.send("POST", edge.ModelRoot+"/chat/completions", key, `{"model":"`+m.id.String()+`"}`)
	}
	for range clients {
		users.Go(func() {
			for first := true; ; first = false {
				dead := revoked.Load()
				switch a := ask(); {
				case a.status == 200 && !dead:
				case a.status == 401:
					return
				default:
					t.Errorf("%d %s, after the revocation: %t", a.status, a.body, dead)
					used <- struct{}{}
					return
				}
				if first {
					used <- struct{}{}
				}
			}
		})
	}
	for range clients {
		<-used
	}
	revoke()
	revoked.Store(true)
	users.Wait()
}

// TestModelsWithoutALeader serves models for some seconds while no leader is known, and then
// refuses: credentials may have been revoked elsewhere.
func TestModelsWithoutALeader(t *testing.T) {
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}")
	})
	for contact, want := range map[time.Duration]int{0: 200, 4 * time.Second: 200, 6 * time.Second: 503, time.Hour: 503} {
		m.know(func(s *readerState) { s.noLeader, s.lastContact = true, contact })
		if a := m.ask(""); a.status != want {
			t.Errorf("%s after the last contact: %d %s", contact, a.status, a.body)
		}
	}
}

// noServices has no replicas.
type noServices struct{}

func (noServices) RoundTrip(*fsm.View, *compute.Execution, *http.Request) (*http.Response, error) {
	return nil, compute.Errorf(compute.CodeUnavailable, "No replica answers.")
}

// TestRefusedByModelsAndServices holds that requests to models and services count toward the rates of
// keys also where they are refused: with a key that is not for them, of another organization.
func TestRefusedByModelsAndServices(t *testing.T) {
	const burst = 20
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, nil, func(c *handler.Config) {
		c.Services, c.Limits.Rate, c.Limits.Burst = noServices{}, 0.001, burst
	})
	for _, path := range []string{edge.ModelRoot + "/models", edge.ServiceRoot + m.id.String() + "/"} {
		var key wire.MintedKey
		m.mustDo("POST", "/orgs/bob-lab/api-keys", m.bobKey, map[string]any{
			"name": path, "scopes": []compute.Scope{compute.ScopeBillingRead},
		}, &key)
		counts := map[int]int{}
		for range 2 * burst {
			counts[m.send("GET", path, key.PlaintextKey, nil).status]++
		}
		if counts[403] != burst || counts[429] != burst {
			t.Errorf("%s: the answers are %v, want %d of 403 and of 429", path, counts, burst)
		}
	}
}

// visit asks the service of the deployment with a query and a cookie. It returns the status, and
// the cookie that is set.
func (m *modelWorld) visit(query, cookie string) (status int, set string) {
	m.Helper()
	client := *m.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	at := m.url + edge.ServiceRoot + m.id.String() + "/" + query
	req, err := http.NewRequestWithContext(m.Context(), http.MethodGet, at, nil)
	m.ok(err)
	req.Header.Set("Cookie", cookie)
	answer, err := client.Do(req)
	m.ok(err)
	answer.Body.Close()
	set, _, _ = strings.Cut(answer.Header.Get("Set-Cookie"), ";")
	return answer.StatusCode, set
}

// TestServiceCookieEndsWithTheKeysValue regenerates the key that a cookie was made with: the cookie
// opens its service no more, and one of the new value does.
func TestServiceCookieEndsWithTheKeysValue(t *testing.T) {
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, nil, func(c *handler.Config) { c.Services = noServices{} })
	var key wire.MintedKey
	m.mustDo("POST", "/orgs/ada-lab/api-keys", m.adaKey, map[string]any{"name": "leaked"}, &key)
	exchange := func(value string) string {
		_, cookie := m.visit("?token="+value, "")
		return cookie
	}
	const admitted = 503 // There is no replica.
	cookie := exchange(key.PlaintextKey)
	if status, _ := m.visit("", cookie); status != admitted {
		t.Errorf("with the cookie: %d", status)
	}
	m.mustDo("POST", "/orgs/ada-lab/api-keys/"+key.ID.String()+"/regenerate", m.adaKey, nil, &key)
	if status, _ := m.visit("", cookie); status != 401 {
		t.Errorf("with the cookie of the value before: %d", status)
	}
	if status, _ := m.visit("", exchange(key.PlaintextKey)); status != admitted {
		t.Errorf("with a new cookie: %d", status)
	}
}

// TestServiceCookieEndsWithItsLogin has the login of a cookie forgotten, as a restore does: the
// cookie ends.
func TestServiceCookieEndsWithItsLogin(t *testing.T) {
	m := newModelWorld(t, edge.ModelLimits{InFlight: 8}, nil, func(c *handler.Config) { c.Services = noServices{} })
	session := m.login("ada")
	_, cookie := m.visit("?token="+session.AccessToken, "")
	if status, _ := m.visit("", cookie); status != 503 {
		t.Errorf("with the cookie: %d", status)
	}
	m.must(command.RaiseEpoch{Term: 1, Epoch: m.machine.View().ClusterEpoch() + 1, Cause: command.CauseRestored})
	if status, _ := m.visit("", cookie); status != 401 {
		t.Errorf("after a restore: %d", status)
	}
}
