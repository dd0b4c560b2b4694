package node_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"berth/api/client"
	"berth/api/wire"
	"berth/node/nodetest"
)

// receiver keeps the callbacks that it gets.
type receiver struct {
	*httptest.Server
	file string // The certificate of its authority.

	mu   sync.Mutex
	fail bool                // Answer 503 under /later, and nothing under /held.
	got  map[string][]string // Webhook ids by path.
	last wire.CallbackBody
	sent map[string]signed   // By path, the last one.
	all  map[string][]string // Bodies by webhook id.
}

// signed is a callback as it came, for its signature.
type signed struct {
	header http.Header
	body   []byte
}

// verify checks the signature of the last callback to a path.
func (r *receiver) verify(secret, path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return hook.Verify(r.sent[path].body, r.sent[path].header)
}

// newReceiver returns a receiver that fails under /later at first, and does not answer under
// /held.
func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{
		got: map[string][]string{}, sent: map[string]signed{}, all: map[string][]string{}, fail: true,
		file: filepath.Join(t.TempDir(), "ca.pem"),
	}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got[req.URL.Path] = append(r.got[req.URL.Path], req.Header.Get("Webhook-Id"))
		body, err := io.ReadAll(req.Body)
		if err == nil {
			r.sent[req.URL.Path] = signed{req.Header.Clone(), body}
			r.all[req.Header.Get("Webhook-Id")] = append(r.all[req.Header.Get("Webhook-Id")], string(body))
			err = json.Unmarshal(body, &r.last)
		}
		if err != nil {
			t.Errorf("the body of %s: %v", req.URL.Path, err)
		}
		switch {
		case req.URL.Path == "/later" && r.fail:
			w.WriteHeader(http.StatusServiceUnavailable)
		case req.URL.Path == "/held" && r.fail:
			r.mu.Unlock()
			<-req.Context().Done()
			r.mu.Lock()
		case req.URL.Path == "/moved":
			http.Redirect(w, req, "/target", http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(r.Close)
	block := &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}
	if err := os.WriteFile(r.file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// silent is a receiver that never answers.
type silent struct {
	*httptest.Server

	asked atomic.Bool
}

// newSilent returns a receiver that never answers, with the same certificate as others.
func newSilent(t *testing.T) *silent {
	t.Helper()
	s, end := new(silent), make(chan struct{})
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // Without it the server does not notice that the client has left.
		s.asked.Store(true)
		select {
		case <-req.Context().Done():
		case <-end:
		}
	}))
	t.Cleanup(func() { close(end); s.Close() })
	return s
}

// ids returns the webhook ids that came to a path.
func (r *receiver) ids(path string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got[path]...)
}

// recover has /later and /held succeed.
func (r *receiver) recover() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = false
}

// TestCallbacks tells receivers of an end: one that never answers, one that takes it, one that
// does so only after the leader was lost, some at addresses that are not allowed, and one that
// names another URL.
func TestCallbacks(t *testing.T) {
	t.Parallel() // It mostly waits.
	r, never := newReceiver(t), newSilent(t)
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) {
		cfg.Callbacks.Allow, cfg.Callbacks.CAFile = []string{"127.0.0.1/32"}, r.file
	})
	account, leader := c.MustAccount("acme"), c.Leader()
	follower := c.Follower()
	api := nodetest.MustClient(t, account.Key, follower.URL())
	t.Run("bad URLs", func(t *testing.T) { checkBadStarts(t, follower.URL(), account.Key, badCallbacks()) })
	t.Run("no engine", func(t *testing.T) { checkNoEngine(t, c, account) })
	t.Run("dead host", func(t *testing.T) { checkDeadHost(t, api) })
	t.Run("selection", func(t *testing.T) { checkSelectionCallback(t, api, r) })
	if err := api.SetVariable(t.Context(), "PLACE", "now", true); err != nil {
		t.Fatal(err)
	}
	first, err := api.SetCallbackSecret(t.Context(), account.Slug)
	if err != nil {
		t.Fatal(err)
	}
	started, err := api.Submit(t.Context(), client.Start{
		Code: "raise SystemExit(3)", Timeout: 60,
		CallbackURLs: []string{
			never.URL, r.URL + "/${{ secrets.PLACE }}", r.URL + "/later", "https://127.0.0.2:1/never", r.URL + "/moved",
			"https://10.0.0.1/private", "https://169.254.169.254/latest/meta-data/",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the receivers to be told", func() bool {
		return len(r.ids("/now")) > 0 && len(r.ids("/later")) > 0 && never.asked.Load()
	})
	r.mu.Lock()
	if r.last.Event != "execution.failed" || r.last.ExecutionID != started.ExecutionID ||
		r.last.ReturnCode == nil || *r.last.ReturnCode != 3 || len(r.last.Errors) != 1 || r.last.Billed == nil {
		t.Errorf("told %+v", r.last)
	}
	r.mu.Unlock()

	if err := r.verify(first.Secret, "/now"); err != nil {
		t.Errorf("the signature: %v", err)
	}
	second, err := api.SetCallbackSecret(t.Context(), account.Slug)
	if err != nil {
		t.Fatal(err)
	}

	var list []wire.Callback
	status := func(want ...string) func() bool {
		return func() bool {
			if list, err = api.Callbacks(t.Context(), started.ExecutionID); err != nil || len(list) != len(want)+1 {
				return false
			}
			list = list[1:] // The first one is never answered.
			for i, s := range want {
				if list[i].Status != s || list[i].Tries == 0 {
					return false
				}
			}
			return true
		}
	}
	nodetest.Eventually(t, endWait, "the tries to be kept", status("delivered", "pending", "pending", "pending", "pending", "pending"))
	for _, refused := range list[4:] {
		if !strings.Contains(orNone(refused.Error), "not a public address") {
			t.Errorf("kept %+v", refused)
		}
	}
	if list[1].StatusCode == nil || *list[1].StatusCode != 503 || !strings.Contains(orNone(list[2].Error), "not a public address") || list[2].StatusCode != nil || list[1].NextAt == nil {
		t.Errorf("kept %+v", list)
	}
	if code := list[3].StatusCode; code == nil || *code != http.StatusTemporaryRedirect {
		t.Errorf("of a receiver that redirects is kept %+v", list[3])
	}
	mustVoters(t, nodetest.MustClient(t, c.RootToken, follower.URL()), 3) // Without the leader, two are a quorum then.
	leader.Stop()
	r.recover()
	nodetest.Eventually(t, endWait, "the next leader to deliver", status("delivered", "delivered", "pending", "pending", "pending", "pending"))
	if before, after := r.verify(first.Secret, "/later"), r.verify(second.Secret, "/later"); before != nil || after != nil {
		t.Errorf("after a rotation the signatures are %v and %v", before, after)
	}
	ids := r.ids("/later")
	for _, id := range ids {
		if id != list[1].WebhookID || id == list[0].WebhookID {
			t.Errorf("the ids of %s are %v", list[1].WebhookID, ids)
		}
	}
	if n := len(ids); n < 2 || len(r.ids("/now")) != 1 {
		t.Errorf("%d tries of a receiver that failed, %d of one that did not", n, len(r.ids("/now")))
	}

	if list[0].URL != r.URL+"/${{ secrets.PLACE }}" {
		t.Errorf("shown is %s", list[0].URL)
	}
	done, err := api.Redeliver(t.Context(), started.ExecutionID, list[0].WebhookID)
	if err != nil || done.Count != 1 {
		t.Fatalf("redelivered %+v, %v", done, err)
	}
	nodetest.Eventually(t, endWait, "it to be sent again", func() bool { return len(r.ids("/now")) == 2 })
	if again := r.ids("/now"); again[0] != again[1] {
		t.Errorf("sent again with another id: %v", again)
	}
	_, err = api.Redeliver(t.Context(), started.ExecutionID, "msg_unknown")
	if refusal, ok := errors.AsType[*client.Error](err); !ok || refusal.Status != http.StatusNotFound {
		t.Errorf("an unknown callback: %v", err)
	}
	if followed := r.ids("/target"); len(followed) > 0 || len(r.ids("/moved")) == 0 {
		t.Errorf("the redirect was followed %d times", len(followed))
	}
	leader.Start()
}
