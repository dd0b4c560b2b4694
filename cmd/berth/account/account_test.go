package account

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
	"berth/cmd/berth/contexts"
)

const (
	orgID   = "0198c0de-0000-7000-8000-0000000000aa"
	userID  = "0198c0de-0000-7000-8000-0000000000bb"
	ownerID = "0198c0de-0000-7000-8000-0000000000cc"
	keyID   = "0198c0de-0000-7000-8000-00000000dddd"
	session = `{"access_token":"eyJ","refresh_token":"r1","expires_in":900,"password_temporary":true}`
	status  = `{"email":"bea@example.com","org_id":"` + orgID + `"}`
	orgs    = `[{"id":"` + orgID + `","slug":"lab","name":"Lab","role":"member","created_at":"2026-01-01T00:00:00Z"},` +
		`{"id":"0198c0de-0000-7000-8000-0000000000ab","slug":"vision","name":"Vision","role":"owner","created_at":"2026-01-01T00:00:00Z"}]`
	members = `[{"user_id":"` + ownerID + `","email":"ada@example.com","full_name":"Ada","role":"owner","joined_at":"2026-01-01T00:00:00Z"},` +
		`{"user_id":"` + userID + `","email":"bea@example.com","full_name":null,"role":"member","joined_at":"2026-02-01T00:00:00Z"}]`
	ownKey = `{"id":"` + keyID + `","user_id":"` + userID + `","key_name":"laptop","key_prefix":"lk_abcde","is_active":true,` + `"created_at":"2026-01-01T00:00:00Z"`
	oldKey = `{"id":"0198c0de-0000-7000-8000-00000000ffff","name":"old","prefix":"lk_klmno","is_active":true,` +
		`"created_at":"2026-01-01T00:00:00Z","expires_at":"2026-01-01T08:00:00Z","max_credits":2.5}`
	sharedKey = `{"id":"0198c0de-0000-7000-8000-00000000eeee","name":"ci","prefix":"lk_fghij","is_active":false,"created_at":"2026-01-01T00:00:00Z"}`
)

// execute executes a command line of berth.
func execute(t *testing.T, stdin string, args ...string) clitest.Result {
	t.Helper()
	for _, name := range []string{"BERTH_ORG", "BERTH_CONTEXT", "BERTH_CACERT"} {
		t.Setenv(name, "")
	}
	root := clitest.Root([]*cobra.Command{
		NewLogin(), NewLogout(), NewWhoami(), NewPassword(), NewContext(), NewKeys(), NewOrgs(), NewInvite(), NewSecrets(), NewBilling(),
	}...)
	return clitest.Execute(t.Context(), root, stdin, args...)
}

// asked is a request of a command.
type asked struct{ method, path, bearer, org, body string }

// mustLab serves a cluster with bea in the organization lab, who is not signed in.
// It returns its address and the last request that changed something.
func mustLab(t *testing.T) (string, *asked) {
	t.Helper()
	last := new(asked)
	answer := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				data, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				*last = asked{r.Method, strings.TrimPrefix(r.URL.Path, clitest.APIRoot), r.Header.Get("Authorization"), r.Header.Get("X-Org-Slug"), string(data)}
			} else if r.Header.Get("Authorization") == "Bearer lk_bad" {
				w.WriteHeader(http.StatusUnauthorized)
				body = `{"detail":"The bearer token is missing, invalid or expired.","code":"unauthenticated"}`
			}
			clitest.Answer(body)(w, r)
		}
	}
	login := answer(session)
	routes := map[string]http.HandlerFunc{
		"POST /auth/login": func(w http.ResponseWriter, r *http.Request) {
			var in map[string]string
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in["password"] != "a password" {
				w.WriteHeader(http.StatusUnauthorized)
				answer(`{"detail":"The email or the password is wrong.","code":"bad_login"}`)(w, r)
				return
			}
			login(w, r)
		},
		"POST /auth/logout": answer(`{"message":"bye"}`), "POST /user/password": answer(`{"message":"ok"}`),
		"GET /user/status": answer(status), "GET /orgs": answer(orgs),
		"GET /admin/nodes":      answer(`{"nodes":[]}`),
		"GET /orgs/lab/members": answer(members), "PATCH /orgs/lab/members/" + userID: answer(
			`{"user_id":"` + userID + `","email":"bea@example.com","role":"admin","joined_at":"2026-02-01T00:00:00Z"}`),
		"DELETE /orgs/lab/members/" + userID: answer(`{"message":"ok"}`),
		"GET /auth/api-keys":                 answer("[" + ownKey + "}]"), "POST /auth/api-keys": answer(ownKey + `,"api_key":"lk_secret"}`),
		"DELETE /auth/api-keys/" + keyID:            answer(`{"message":"ok"}`),
		"PATCH /auth/api-keys/" + keyID + "/toggle": answer(ownKey + "}"),
		"GET /orgs/lab/api-keys":                    answer("[" + sharedKey + "," + oldKey + "]"),
		"POST /orgs/lab/api-keys":                   answer(strings.TrimSuffix(sharedKey, "}") + `,"plaintext_key":"lk_shared"}`),
		"DELETE /orgs/lab/api-keys/":                answer(`{"message":"ok"}`),
		"POST /orgs":                                answer(`{"slug":"own","name":"Own","role":"owner"}`),
		"PATCH /orgs/lab":                           answer(`{"slug":"lab2","name":"Lab","role":"owner"}`),
		"DELETE /orgs/lab":                          answer(`{"message":"ok"}`),
		"POST /orgs/lab/default":                    answer(`{"slug":"lab","name":"Lab"}`),
		"GET /orgs/lab/invites":                     answer("[" + invite + "}]"),
		"POST /orgs/lab/invites":                    answer(invite + `,"token":"inv_secret"}`),
		"DELETE /orgs/lab/invites/" + keyID:         answer(`{"message":"ok"}`),
		"GET /invites":                              answer("[" + invite + "}]"),
		"POST /invites/inv_secret/accept":           answer(invite + "}"),
		"POST /invites/inv_secret/decline":          answer(invite + "}"),
		"GET /environment-variables":                answer(`{"environment_variables":[` + variable + `]}`),
		"POST /environment-variables":               answer(`{"environment_variables":[` + variable + `]}`),
		"DELETE /environment-variables":             answer(`{"deleted":1,"message":"ok"}`),
		"DELETE /environment-variables/" + keyID:    answer(`{"message":"ok"}`),
		"GET /billing/usage": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("group_by") == "key" {
				answer(usageOfKeys)(w, r)
				return
			}
			answer(usage)(w, r)
		},
		"GET /orgs/lab/budgets":             answer(budgets),
		"PUT /orgs/lab/budgets":             answer(`{"max_credits":5}`),
		"DELETE /orgs/lab/budgets/" + keyID: answer(`{"message":"ok"}`),
		"GET /billing/activities": answer(`{"activities":[{"activity_id":"7","created_at":"2026-02-01T00:00:00Z","type":"charge","amount":-1.5,
			"description":"code ran 1s","status":"completed"}],"total_activities":1}`),
		"GET /billing/invoices":                  answer(`{"invoices":[{"id":"2026-10-9d1f0a2b","month":"2026-10","status":"paid"}],"total_invoices":1}`),
		"GET /billing/invoices/2026-10-9d1f0a2b": answer("%PDF-1.3"),
	}
	full := map[string]http.HandlerFunc{}
	for pattern, handle := range routes {
		method, path, _ := strings.Cut(pattern, " ")
		full[method+" "+clitest.APIRoot+path] = handle
	}
	clitest.MustCluster(t, full)
	addr := os.Getenv("BERTH_ADDR")
	t.Setenv("BERTH_ADDR", "")
	t.Setenv("BERTH_TOKEN", "")
	return addr, last
}

const (
	invite = `{"id":"` + keyID + `","org_slug":"lab","org_name":"Lab","email":"cyd@example.com","role":"admin","status":"pending",
		"invited_by":"bea@example.com","created_at":"2026-02-01T00:00:00Z","expires_at":"2026-02-08T00:00:00Z"`
	variable = `{"id":"` + keyID + `","name":"TOKEN","value":"****","is_secret":true,"created_at":"2026-02-01T00:00:00Z",
		"updated_at":"2026-02-01T00:00:00Z"}`
	usage = `{"group_by":"tag","from":"2026-02-01T00:00:00Z","to":"2026-03-01T00:00:00Z",
		"rows":[{"group":"night","executions":2,"seconds":7200,"gpu_seconds":3600,"credits":1.5,"prompt_tokens":7,"completion_tokens":5},
		{"group":"","executions":1,"seconds":3600,"gpu_seconds":0,"credits":0.25}],
		"total":{"group":"","executions":2,"seconds":7200,"gpu_seconds":3600,"credits":1.5}}`
	budgets = `[{"max_credits":9,"period":"month"},{"key_id":"0198c0de-0000-7000-8000-00000000eeee","max_credits":5,"period":"total"},
		{"key_id":"` + keyID + `","max_credits":5,"enforce":true,"period":"month","callback_url":"https://a.example"},{"user_id":"` + userID + `","max_credits":5},{"user_id":"` + orgID + `","max_credits":5}]`
	usageOfKeys = `{"group_by":"key","rows":[{"group":"ci","id":"` + keyID + `"},{"group":"ci","id":"` + orgID + `"},
		{"group":"laptop","id":"` + userID + `"}],"total":{"group":""}}`
)

// TestOrgCommands makes, changes and deletes organizations, and invites people.
func TestOrgCommands(t *testing.T) {
	addr, last := mustLab(t)
	mustLogin(t, addr)
	want(t, execute(t, "", "orgs", "create", "Own"), 0, "the organization own is yours; an API key acts in its own organization only")
	if last.path != "/orgs" || last.body != `{"name":"Own"}` {
		t.Errorf("asked %+v", last)
	}
	want(t, execute(t, "", "orgs", "set", "lab"), cli.ExitUsage, "--name")
	want(t, execute(t, "", "orgs", "set", "lab", "--slug", "lab2"), 0, "lab2")
	if last.body != `{"slug":"lab2"}` {
		t.Errorf("asked %+v", last)
	}
	want(t, execute(t, "", "orgs", "default", "lab"), 0, "default organization")
	want(t, execute(t, "", "orgs", "delete", "lab"), cli.ExitUsage, "--yes")
	want(t, execute(t, "", "orgs", "delete", "lab", "--yes"), 0, "lab is deleted")

	r := execute(t, "", "invite", "create", "cyd@example.com", "--role", "admin")
	if r.Code != 0 || r.Out != "berth invite accept inv_secret\n" || last.body != `{"email":"cyd@example.com","role":"admin"}` {
		t.Errorf("got %+v, asked %+v", r, last)
	}
	want(t, execute(t, "", "invite", "create", "cyd@example.com", "--role", "king"), cli.ExitUsage, "--role")
	for _, list := range []string{"ls", "mine"} {
		want(t, execute(t, "", "invite", list), 0, "cyd@example.com   admin   pending   bea@example.com   2026-02-08")
		want(t, execute(t, "", "invite", list, "--json"), 0, `"org_slug": "lab"`)
	}
	want(t, execute(t, "", "invite", "rm", "Cyd@Example.com"), 0, "cyd@example.com is revoked")
	want(t, execute(t, "", "invite", "rm", "dan@example.com"), cli.ExitFailed, "is not invited")
	want(t, execute(t, "", "invite", "accept", "inv_secret"), 0, "you are an admin of lab")
	want(t, execute(t, "", "invite", "decline", "inv_secret"), 0, "declined")
}

// TestSecretCommands keeps and deletes secrets, whose values are never arguments.
func TestSecretCommands(t *testing.T) {
	addr, last := mustLab(t)
	mustLogin(t, addr)
	want(t, execute(t, "hunter2\n", "secret", "set", "TOKEN"), 0, "TOKEN is kept")
	if !strings.Contains(last.body, `"value":"hunter2"`) || !strings.Contains(last.body, `"is_secret":true`) {
		t.Errorf("asked %+v", last)
	}
	want(t, execute(t, "", "secret", "set", "TOKEN"), cli.ExitUsage, "is empty")
	want(t, execute(t, "", "secret", "set", "LEVEL", "--plain"), 0, "LEVEL is kept")
	want(t, execute(t, "", "secret", "ls"), 0, "TOKEN   ****")
	want(t, execute(t, "", "secret", "rm", "TOKEN"), 0, "")
	want(t, execute(t, "", "secret", "rm", "OTHER"), cli.ExitFailed, "no secret")
	want(t, execute(t, "", "secret", "rm"), cli.ExitUsage, "--all")
	want(t, execute(t, "", "secret", "rm", "--all"), 0, "1 deleted")
}

// TestBudgetCommands names whose budgets they are, also of members that have left, and never
// takes an empty name for the organization.
func TestBudgetCommands(t *testing.T) {
	addr, last := mustLab(t)
	mustLogin(t, addr)
	clitest.CheckGolden(t, "budgets", execute(t, "", "billing", "budget", "list").Out)
	*last = asked{}
	for _, flag := range []string{"--key=", "--member="} {
		want(t, execute(t, "", "billing", "budget", "set", "5", flag), cli.ExitUsage, "is empty")
		want(t, execute(t, "", "billing", "budget", "remove", flag), cli.ExitUsage, "is empty")
	}
	if last.path != "" {
		t.Errorf("asked %+v", last)
	}
	for flags, sent := range map[string]string{ // A ceiling that is raised stays one.
		"--key laptop": `{"callback_url":"https://a.example","enforce":true,"key_id":"` + keyID + `","max_credits":20,"period":"month"}`,
		"--key laptop --enforce=false --callback= --monthly=false": `{"enforce":false,"key_id":"` + keyID + `","max_credits":20,"period":"total"}`,
		"--key ci --enforce": `{"enforce":true,"key_id":"0198c0de-0000-7000-8000-00000000eeee","max_credits":20,"period":"total"}`,
		"":                   `{"enforce":false,"max_credits":20,"period":"month"}`,
	} {
		want(t, execute(t, "", append([]string{"billing", "budget", "set", "20"}, strings.Fields(flags)...)...), 0, "")
		var got, wanted map[string]any
		if json.Unmarshal([]byte(last.body), &got) != nil || json.Unmarshal([]byte(sent), &wanted) != nil || !maps.Equal(got, wanted) {
			t.Errorf("%s: sent %s, want %s", flags, last.body, sent)
		}
	}
	want(t, execute(t, "", "billing", "budget", "remove", "--member", keyID), 0, "the budget is removed")
	want(t, execute(t, "", "billing", "budget", "remove", "--member", "nobody"), cli.ExitFailed, "not a member")
}

// TestBillingCommands prints the use, and saves a statement.
func TestBillingCommands(t *testing.T) {
	addr, _ := mustLab(t)
	mustLogin(t, addr)
	r := execute(t, "", "billing", "usage", "--by", "tag", "--from", "2026-02-01")
	want(t, r, 0, "night     2            2.00    1.00        7               5                   1.5")
	want(t, r, 0, "-         1            1.00 ") // Without a tag.
	want(t, r, 0, "(total)   2            2.00    1.00        0               0                   1.5")
	r = execute(t, "", "billing", "usage", "--by", "key")
	want(t, r, 0, "ci "+keyID+" ")
	want(t, r, 0, "ci "+orgID+" ")
	want(t, r, 0, "laptop ")
	want(t, execute(t, "", "billing", "usage", "--from", "yesterday"), cli.ExitUsage, "--from")
	want(t, execute(t, "", "billing", "activities"), 0, "-1.5")
	want(t, execute(t, "", "billing", "invoices"), 0, "2026-10   paid")
	file := filepath.Join(t.TempDir(), "i.pdf")
	want(t, execute(t, "", "billing", "invoices", "2026-10", "-o", file), 0, "is in "+file)
	if data, err := os.ReadFile(file); err != nil || string(data) != "%PDF-1.3" {
		t.Errorf("saved %q, %v", data, err)
	}
	want(t, execute(t, "", "billing", "invoices", "2026-10", "-o", file), cli.ExitFailed, "exists")
	want(t, execute(t, "", "billing", "invoices", "2026-09", "-o", file), cli.ExitFailed, "no statement")
	want(t, execute(t, "", "billing", "invoices", "2026-09"), cli.ExitUsage, "-o FILE")
}

// want fails if a command did not end as expected.
func want(t *testing.T, r clitest.Result, code int, text string) {
	t.Helper()
	if r.Code != code || !strings.Contains(r.Out+r.Errors, text) {
		t.Errorf("got %+v, want exit code %d and %q", r, code, text)
	}
}

// mustLogin signs bea in.
func mustLogin(t *testing.T, addr string) {
	t.Helper()
	r := execute(t, "a password\n", "login", "--addr", addr, "--email", "bea@example.com", "--password-file", "-")
	if r.Code != 0 {
		t.Fatalf("got %+v", r)
	}
}

func TestLogin(t *testing.T) {
	addr, last := mustLab(t)
	mustLogin(t, addr)
	want(t, execute(t, "", "whoami"), 0, "bea@example.com, a member of lab, at "+addr+" (context lab)")
	want(t, execute(t, "", "whoami", "--json"), 0, `"context": "lab"`)
	want(t, execute(t, "wrong", "login", "--addr", addr, "--email", "bea@example.com", "--password-file", "-"),
		cli.ExitFailed, "The email or the password is wrong.")
	r := execute(t, "a password", "login", "--addr", addr, "--email", "bea@example.com", "--password-file", "-", "--context", "again")
	want(t, r, 0, "change it with berth password")
	want(t, execute(t, "", "context", "list"), 0, "*   again   session   bea@example.com")
	want(t, execute(t, "", "context", "use", "lab"), 0, "lab is current")
	want(t, execute(t, "", "context", "use", "nowhere"), cli.ExitUsage, "no context")
	want(t, execute(t, "", "logout"), 0, "lab is removed")
	if last.path != "/auth/logout" || last.body != `{"refresh_token":"r1"}` {
		t.Errorf("asked %+v", last)
	}
	want(t, execute(t, "", "whoami"), cli.ExitUsage, "berth login")
	want(t, execute(t, "", "context", "rm", "again", "nowhere"), cli.ExitUsage, "1 of 2 failed")
	want(t, execute(t, "", "context", "list", "--json"), 0, "[]")
}

func TestLoginWithKey(t *testing.T) {
	addr, _ := mustLab(t)
	token := filepath.Join(t.TempDir(), "root_token")
	want(t, execute(t, "lk_1\n", "login", "--addr", addr, "--key"), 0, "the context lab is current")
	f, err := contexts.Load()
	if err != nil || f.Contexts["lab"].Key != "lk_1" || f.Contexts["lab"].Email != "bea@example.com" {
		t.Errorf("kept %+v, %v", f, err)
	}
	want(t, execute(t, "lk_bad\n", "login", "--addr", addr, "--key"), cli.ExitFailed, "missing, invalid or expired")
	want(t, execute(t, "\n", "login", "--addr", addr, "--key"), cli.ExitUsage, "empty")
	if err := os.WriteFile(token, []byte("brt_1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, execute(t, "", "login", "--addr", addr, "--token-file", token), 0, "signed in as the root token; the context root")
	want(t, execute(t, "", "login", "--addr", addr, "--token-file", token, "--context", "../x"), cli.ExitUsage, "--context")
	want(t, execute(t, "", "login", "--addr", addr, "--key", "--email", "x"), cli.ExitUsage, "none of the others can be")
	want(t, execute(t, "", "login"), cli.ExitUsage, "--email")
	want(t, execute(t, "", "context", "use", "lab"), 0, "")
	want(t, execute(t, "", "orgs", "use", "vision"), cli.ExitUsage, "an API key, which is for one organization")
}

func TestKeys(t *testing.T) {
	addr, last := mustLab(t)
	mustLogin(t, addr)
	out := filepath.Join(t.TempDir(), "key")
	r := execute(t, "", "keys", "create", "laptop", "--expires", "30d")
	if r.Code != 0 || r.Out != "lk_secret\n" || last.bearer != "Bearer eyJ" || !strings.Contains(last.body, `"expires_at":"`) {
		t.Errorf("got %+v, asked %+v", r, last)
	}
	want(t, execute(t, "", "keys", "create", "ci", "--shared", "--out", out), 0, "is in "+out)
	if data, err := os.ReadFile(out); err != nil || string(data) != "lk_shared\n" || last.path != "/orgs/lab/api-keys" {
		t.Errorf("the file has %q, %v; asked %+v", data, err, last)
	}
	*last = asked{}
	want(t, execute(t, "", "keys", "create", "ci", "--out", out), cli.ExitFailed, "file exists")
	if last.path != "" {
		t.Errorf("a key was made that goes nowhere: %+v", last)
	}
	want(t, execute(t, "", "keys", "create", "x", "--expires", "soon"), cli.ExitUsage, "--expires")
	want(t, execute(t, "", "keys", "create", "x", "--scope", "executions:read,root"), cli.ExitUsage, `no "root"`)
	for _, ceiling := range []string{"0", "-1", "", "0.0000001"} { // None of them may become a key without a ceiling.
		want(t, execute(t, "", "keys", "create", "x", "--max-credits="+ceiling), cli.ExitUsage, "--max-credits")
	}
	for _, flag := range []string{"--scope=", "--expires="} { // Nor one with all rights, or for ever.
		want(t, execute(t, "", "keys", "create", "x", flag), cli.ExitUsage, "is empty")
	}
	*last = asked{}
	want(t, execute(t, "", "keys", "create", "x", "--scope", "billing:read", "--scope", "admin"), 0, "")
	if !strings.Contains(last.body, `"scopes":["billing:read","admin"]`) {
		t.Errorf("asked %+v", last)
	}
	clitest.CheckGolden(t, "keys", execute(t, "", "keys", "list").Out)
	want(t, execute(t, "", "keys", "list", "--json"), 0, `"shared": true`)
	want(t, execute(t, "", "keys", "disable", "laptop"), 0, "laptop is disabled")
	if last.path != "/auth/api-keys/"+keyID+"/toggle" {
		t.Errorf("asked %+v", last)
	}
	*last = asked{}
	want(t, execute(t, "", "keys", "enable", "dddd"), 0, "laptop is enabled")
	if last.path != "" {
		t.Errorf("an active key was toggled: %+v", last)
	}
	want(t, execute(t, "", "keys", "revoke", "nowhere", "ci", "laptop"), cli.ExitUsage, "1 of 3 failed")
	if last.method != "DELETE" || last.path != "/auth/api-keys/"+keyID {
		t.Errorf("asked %+v", last)
	}
}

func TestOrgs(t *testing.T) {
	addr, last := mustLab(t)
	mustLogin(t, addr)
	clitest.CheckGolden(t, "orgs", execute(t, "", "orgs").Out)
	clitest.CheckGolden(t, "members", execute(t, "", "orgs", "members").Out)
	want(t, execute(t, "", "orgs", "role", "Bea@example.com", "admin"), 0, "bea@example.com is an admin of lab")
	if last.method != "PATCH" || last.body != `{"role":"admin"}` {
		t.Errorf("asked %+v", last)
	}
	want(t, execute(t, "", "orgs", "role", "bea@example.com", "king"), cli.ExitUsage, "owner, admin or member")
	want(t, execute(t, "", "orgs", "role", "cyd@example.com", "admin"), cli.ExitFailed, "not a member of lab")
	want(t, execute(t, "", "orgs", "remove", userID), 0, "bea@example.com has left lab")
	want(t, execute(t, "", "orgs", "use", "vision"), 0, "acts in vision")
	want(t, execute(t, "", "orgs", "use", "nlp"), cli.ExitFailed, "not a member")
	want(t, execute(t, "", "keys", "create", "x"), 0, "lk_secret")
	if last.org != "vision" {
		t.Errorf("after berth orgs use vision, asked %+v", last)
	}
	want(t, execute(t, "", "keys", "create", "x", "--org", "lab"), 0, "lk_secret")
	if last.org != "lab" {
		t.Errorf("with --org lab, asked %+v", last)
	}
}

func TestPassword(t *testing.T) {
	addr, last := mustLab(t)
	mustLogin(t, addr)
	dir := t.TempDir()
	for name, text := range map[string]string{"old": "a password\n", "new": "another password\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want(t, execute(t, "", "password", "--old-file", filepath.Join(dir, "old"), "--new-file", filepath.Join(dir, "new")), 0, "the password is changed")
	if last.body != `{"old_password":"a password","new_password":"another password"}` {
		t.Errorf("asked %+v", last)
	}
}
