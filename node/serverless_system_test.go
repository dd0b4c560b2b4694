package node_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/contracttest"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
	"berth/testsize"
)

// TestServerless publishes a model and asks it as other organizations, through every
// node.
func TestServerless(t *testing.T) {
	t.Parallel() // It mostly waits.
	c, owner, api := inferenceCluster(t, 3, func(cfg *nodetest.NodeConfig) {
		cfg.Billing.Mode, cfg.Inference.QueueWait = "enforce", endWait
		cfg.Inference.Engines[0].Concurrency, cfg.Inference.Queue, cfg.API.AccessLog = modelPlaces, modelQueue, true
		if cfg.Name == nodetest.Config(t, 2).Name {
			cfg.Inference.AnswerWait = soon
		}
	})
	deployment := deploymentOf("tiny/echo")
	deployment.MaxReplicas = 1 // Turns need full places.
	created, err := api.Deploy(t.Context(), deployment)
	if err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, created.ID, "ready")
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	m, err := operator.SetModel(t.Context(), "lab/echo", wire.NewModel{
		Deployment: created.ID.String(), Prompt: 100 * compute.Credit, Completion: 200 * compute.Credit,
	})
	if err != nil || m.Status != "ready" || m.Root != "tiny/echo" {
		t.Fatalf("%+v, %v", m, err)
	}
	one, two, embedder := c.MustAccount("one"), c.MustAccount("two"), c.MustAccount("embedder")
	t.Run("published", func(t *testing.T) { checkPublished(t, c, operator, api, owner, created.ID, one.Key) })
	t.Run("unknown", func(t *testing.T) { checkUnknownModel(t, c, owner, created.ID) })
	t.Run("answers", func(t *testing.T) { checkPublishedAnswers(t, c, created.ID, one.Key) })
	t.Run("money", func(t *testing.T) { checkTokenMoney(t, c, one, two) })
	t.Run("no credits", func(t *testing.T) { checkNoCredits(t, c, operator) })
	t.Run("embeddings", func(t *testing.T) { checkEmbeddingMoney(t, c, embedder) })
	t.Run("verbatim", func(t *testing.T) { checkVerbatim(t, c, one.Key, "lab/echo", created.ID) })
	t.Run("bad engine", func(t *testing.T) { checkBadEngine(t, c, api, created.ID) })
	t.Run("contract", func(t *testing.T) {
		cfg := contracttest.Config{BaseURL: c.Follower().URL(), Client: http.DefaultClient}
		if err := contracttest.ValidateModels(t.Context(), cfg, one.Key, "lab/echo", false); err != nil {
			t.Error(err)
		}
	})
	t.Run("connections", func(t *testing.T) { checkKeptAlive(t, c.Follower().URL(), one.Key) })
	t.Run("left", func(t *testing.T) { checkLeft(t, c, one) })
	t.Run("log", func(t *testing.T) { checkModelLog(t, c, created.ID, one.Key) })
	t.Run("turns", func(t *testing.T) { checkTurns(t, c, one, two) })
	t.Run("turns everywhere", func(t *testing.T) { checkTurnsEverywhere(t, c, one, two) })
	t.Run("withdrawn", func(t *testing.T) {
		if _, err := operator.RemoveModel(t.Context(), "lab/echo"); err != nil {
			t.Fatal(err)
		}
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, c.Follower().URL()+"/openai/v1/chat/completions", one.Key,
			prompt("lab/echo", "x", false))
		if answer.StatusCode != http.StatusNotFound {
			t.Errorf("%d: %s", answer.StatusCode, body)
		}
		if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
			t.Error(err)
		}
	})
	if testsize.Long { // It waits for the end of a minute.
		t.Run("ledger", func(t *testing.T) {
			for _, account := range []nodetest.Account{one, two, embedder} {
				checkLedger(t, c, account)
			}
		})
	}
}

// checkEmbeddingMoney asks a follower for embeddings of texts of many lengths, which have fewer
// tokens than a token for 4 bytes would be. The organization pays for exactly those that the
// engine says: as many as in the answers that it got.
func checkEmbeddingMoney(t *testing.T, c *nodetest.Cluster, account nodetest.Account) {
	want := compute.TokenTotal{}
	for n := range 20 {
		texts, _ := json.Marshal([]string{strings.Repeat("tokens ", n+1), "of two"})
		if n%2 == 1 {
			texts, _ = json.Marshal(strings.Repeat("longer-tokens ", 7*n))
		}
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, c.Follower().URL()+"/openai/v1/embeddings", account.Key,
			strings.NewReader(fmt.Sprintf(`{"model":"lab/echo","input":%s}`, texts)))
		var got struct {
			Model string
			Data  []struct{ Embedding []float64 }
			Usage struct {
				Prompt int64 `json:"prompt_tokens"`
				Total  int64 `json:"total_tokens"`
			}
		}
		tokens := int64(n + 3)
		if n%2 == 1 {
			tokens = int64(7 * n)
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK || got.Model != "lab/echo" ||
			len(got.Data) != 2-n%2 || len(got.Data[0].Embedding) != 2 || got.Usage.Prompt != tokens || got.Usage.Total != tokens {
			t.Errorf("%d: %s", answer.StatusCode, body)
		}
		want.Requests, want.Prompt = want.Requests+1, want.Prompt+tokens
	}
	mustUse(t, c, account, want)
	if got := tokensOf(c, account).Charged; got != 100*compute.Credits(want.Prompt) {
		t.Errorf("they cost %s, want %s", got, 100*compute.Credits(want.Prompt))
	}
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	report, err := api.Usage(t.Context(), client.UsageQuery{GroupBy: "model"})
	if got := report.Total; err != nil || got.PromptTokens != want.Prompt || got.CompletionTokens != 0 {
		t.Errorf("the report has %+v, %v", got, err)
	}
}

// ledgerWait is for the charges of a minute to be in the ledger.
const ledgerWait = 3 * time.Minute

// checkLedger checks that the ledger of an organization has one charge a minute for its use of
// a model, and that they are all of it.
func checkLedger(t *testing.T, c *nodetest.Cluster, account nodetest.Account) {
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	var lines []wire.LedgerEntry
	var prompt, completion int64
	var charged compute.Credits
	var used compute.TokenTotal
	nodetest.Eventually(t, ledgerWait, "the ledger to have all tokens", func() bool {
		used = tokensOf(c, account)
		lines, prompt, completion, charged = nil, 0, 0, 0
		for cursor := new(uint64); cursor != nil; {
			page, err := api.Ledger(t.Context(), *cursor, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range page.Entries {
				if model, p, q, ok := compute.ParseTokenNote(orNone(line.Note)); ok && model == "lab/echo" && line.Kind == compute.LedgerCharge {
					lines, prompt, completion, charged = append(lines, line), prompt+p, completion+q, charged+line.Amount
				}
			}
			cursor = page.NextCursor
		}
		return prompt == used.Prompt && completion == used.Completion
	})
	if want := 100*compute.Credits(prompt) + 200*compute.Credits(completion); charged != want || charged != used.Charged ||
		prompt != used.Prompt || completion != used.Completion {
		t.Errorf("%s is charged %s for %d and %d tokens, which cost %s; it has used %+v", account.Slug, charged, prompt, completion, want, used)
	}
	minutes := map[int64]bool{}
	for _, line := range lines {
		minute := int64(line.At) / time.Minute.Milliseconds()
		if minutes[minute] || line.ExecutionID != nil {
			t.Errorf("%s has the charges %+v", account.Slug, lines)
		}
		minutes[minute] = true
	}
	credits, err := api.Credits(t.Context())
	if err != nil || credits.TotalUsed != charged {
		t.Errorf("%s has used %+v, charged is %s: %v", account.Slug, credits, charged, err)
	}
}

// checkModelLog checks that a request to a model is logged without what was asked and
// answered.
func checkModelLog(t *testing.T, c *nodetest.Cluster, id compute.ExecutionID, key string) {
	const asked = "what-nobody-else-may-read"
	c.Hide(asked)
	for _, stream := range []bool{false, true} {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, c.Follower().URL()+"/openai/v1/chat/completions", key,
			prompt("lab/echo", asked, stream))
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%d: %s", answer.StatusCode, body)
		}
		nodetest.Eventually(t, endWait, "the request to be logged", func() bool {
			return c.Logged("model answered", "model=lab/echo", "deployment="+id.String(), fmt.Sprint("stream=", stream), "tokens=")
		})
	}
}

// checkPublished checks what lists and prices say of a model.
func checkPublished(
	t *testing.T, c *nodetest.Cluster, operator, api *client.Client, owner nodetest.Account, id compute.ExecutionID, stranger string,
) {
	list, err := operator.Models(t.Context())
	if err != nil || list.Total != 1 || list.Models[0].Deployment != id {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := api.DeleteDeployment(t.Context(), id); err == nil || !strings.Contains(err.Error(), "berth admin model rm lab/echo") {
		t.Errorf("a published deployment is deleted: %v", err)
	}
	for _, n := range c.Nodes {
		for _, path := range []string{"/openai/v1/models", "/api/v2/external/serverless/models", "/openai/v1/models/lab%2Fecho"} {
			answer, body := mustAsk(t, http.DefaultClient, http.MethodGet, n.URL()+path, stranger, nil)
			if answer.StatusCode != http.StatusOK || !strings.Contains(body, `"id":"lab/echo"`) || strings.Contains(body, id.String()) {
				t.Errorf("%s: %d: %s", path, answer.StatusCode, body)
			}
		}
	}
	answer, body := mustAsk(t, http.DefaultClient, http.MethodGet, c.Follower().URL()+"/api/v2/external/pricing", stranger, nil)
	var pricing wire.Pricing
	if err := json.Unmarshal([]byte(body), &pricing); err != nil {
		t.Fatalf("%d: %s", answer.StatusCode, body)
	}
	prices := map[string]string{}
	for _, p := range pricing.Prices {
		if p.Resource == "lab/echo" {
			prices[p.MeterSlug] = p.UnitPrice + " a " + p.Unit
		}
	}
	if prices["serverless_inference_prompt_tokens"] != "0.0001 a token" ||
		prices["serverless_inference_completion_tokens"] != "0.0002 a token" {
		t.Errorf("the prices are %v", prices)
	}
	checkReplicaPrice(t, c, owner, id, pricing)
}

// checkReplicaPrice checks what a follower says that a replica of a deployment costs: as much as
// one of its hardware profile. Its owner sees that, and a stranger does not.
func checkReplicaPrice(t *testing.T, c *nodetest.Cluster, owner nodetest.Account, id compute.ExecutionID, stranger wire.Pricing) {
	t.Helper()
	_, body := mustAsk(t, http.DefaultClient, http.MethodGet, c.Follower().URL()+"/api/v2/external/pricing", owner.Key, nil)
	var pricing wire.Pricing
	if err := json.Unmarshal([]byte(body), &pricing); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	replicas := func(of wire.Pricing) (own, profile []wire.Price) {
		for _, p := range of.Prices {
			switch to := p.AppliesTo; {
			case p.MeterSlug != "deployment_running":
			case to.Deployment != nil && *to.Deployment == id:
				own = append(own, p)
			case to.HardwareProfile == "cpu":
				profile = append(profile, p)
			}
		}
		return own, profile
	}
	e, _ := c.Leader().Peer().View().AnyExecution(id)
	own, profile := replicas(pricing)
	if len(own) != 1 || len(profile) != 1 || own[0].Unit != "second" || own[0].UnitPrice != compute.Credits(e.Price).String() ||
		own[0].UnitPrice != profile[0].UnitPrice || own[0].UnitPricePerHour != profile[0].UnitPricePerHour {
		t.Errorf("a replica costs %+v, of its profile %+v", own, profile)
	}
	if own, profile := replicas(stranger); len(own) != 0 || len(profile) != 1 {
		t.Errorf("a stranger sees %+v and %+v", own, profile)
	}
}

// modelError is an error of the OpenAI API.
type modelError struct{ Message, Type, Code, Param string }

// checkUnknownModel asks a follower, as several organizations, for models that there are not. The
// error names the published ones and those of the organization itself, and no other one's.
func checkUnknownModel(t *testing.T, c *nodetest.Cluster, owner nodetest.Account, id compute.ExecutionID) {
	second, stranger, url := c.MustAccount("second"), c.MustAccount("stranger"), c.Follower().URL()
	api := nodetest.MustClient(t, second.Key, url)
	other, err := api.Deploy(t.Context(), deploymentOf("tiny/late"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		key     string
		foreign compute.ExecutionID
		list    string
	}{
		{owner.Key, other.ID, "lab/echo, " + id.String()}, {second.Key, id, "lab/echo, " + other.ID.String()}, {stranger.Key, id, "lab/echo"},
	} {
		for _, asked := range []string{"gpt-4", test.foreign.String()} {
			for path, body := range map[string]string{
				"/openai/v1/chat/completions": `{"model":"` + asked + `"}`, "/openai/v1/completions": `{"model":"` + asked + `"}`,
				"/openai/v1/embeddings": `{"model":"` + asked + `"}`, "/openai/v1/models/" + asked: "",
				"/api/v2/external/serverless/chat/completions": `{"model":"` + asked + `"}`,
			} {
				method := http.MethodPost
				if body == "" {
					method = http.MethodGet
				}
				answer, body := mustAsk(t, http.DefaultClient, method, url+path, test.key, strings.NewReader(body))
				var got struct{ Error modelError }
				err := json.Unmarshal([]byte(body), &got)
				want := modelError{
					fmt.Sprintf("The model %q does not exist. There are: %s.", asked, test.list), "invalid_request_error", "model_not_found", "model",
				}
				if err != nil || answer.StatusCode != http.StatusNotFound || got.Error != want {
					t.Errorf("%s: %d: %s, want %+v", path, answer.StatusCode, body, want)
				}
			}
		}
	}
	if _, err := api.DeleteDeployment(t.Context(), other.ID); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		nodetest.Eventually(t, endWait, "every node to know its end", func() bool {
			e, ok := n.Peer().View().AnyExecution(other.ID)
			return ok && e.Status.Terminal()
		})
	}
}

// checkNoCredits uses all credits of an organization, and asks a follower for more: each kind of
// request is refused, and free. Once it is granted some, it is answered again.
func checkNoCredits(t *testing.T, c *nodetest.Cluster, operator *client.Client) {
	account, url := c.MustAccount("spent"), c.Follower().URL()
	api := nodetest.MustClient(t, account.Key, url)
	before, err := api.Credits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The engine says that it used them all. The estimate for the body is less.
	const inPrompt = 100_000
	completion := int64(before.Available-100*inPrompt) / 200
	mustWriteRaw(t, c, "all credits", wholeAnswer(http.StatusOK, "application/json", fmt.Sprintf(
		`{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, inPrompt, completion)))
	asks := func(path, body string) (reply, string) {
		t.Helper()
		return mustAsk(t, http.DefaultClient, http.MethodPost, url+path, account.Key, strings.NewReader(body))
	}
	const chat = "/openai/v1/chat/completions"
	if answer, body := asks(chat, fmt.Sprintf(`{"model":"lab/echo","max_tokens":%d,"messages":[{"role":"user","content":"raw all credits"}]}`,
		completion)); answer.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s", answer.StatusCode, body)
	}
	if now, err := api.Credits(t.Context()); err != nil || now.Available != 0 {
		t.Fatalf("of %+v it has %+v, %v", before, now, err)
	}
	const short = `{"model":"lab/echo","max_tokens":1,"messages":[{"role":"user","content":"x"}]`
	for path, bodies := range map[string][]string{
		chat:                     {short + "}", short + `,"stream":true}`},
		"/openai/v1/completions": {`{"model":"lab/echo","max_tokens":1,"prompt":"x"}`},
		"/openai/v1/embeddings":  {`{"model":"lab/echo","input":"x"}`},
		"/api/v2/external/serverless/chat/completions": {short + "}"},
	} {
		for _, body := range bodies {
			answer, text := asks(path, body)
			var got struct{ Error modelError }
			err := json.Unmarshal([]byte(text), &got)
			want := modelError{got.Error.Message, "invalid_request_error", "insufficient_quota", ""}
			if err != nil || answer.StatusCode != http.StatusForbidden || got.Error != want ||
				!strings.HasPrefix(got.Error.Message, "You exceeded your current quota: credits exhausted") {
				t.Errorf("%s, %s: %d: %s", path, body, answer.StatusCode, text)
			}
		}
	}
	mustUse(t, c, account, compute.TokenTotal{Requests: 1, Prompt: inPrompt, Completion: completion})
	if err := operator.Grant(t.Context(), account.Slug, compute.Credit, "to go on"); err != nil {
		t.Fatal(err)
	}
	if answer, body := asks(chat, short+"}"); answer.StatusCode != http.StatusOK {
		t.Errorf("after a grant: %d: %s", answer.StatusCode, body)
	}
}

// checkPublishedAnswers checks that answers are those of the engine but for the name of
// the model.
func checkPublishedAnswers(t *testing.T, c *nodetest.Cluster, id compute.ExecutionID, key string) {
	said := `the "model": "` + id.String() + `" and "usage"`
	for _, n := range c.Nodes {
		for _, path := range []string{"/openai/v1/chat/completions", "/api/v2/external/serverless/chat/completions"} {
			answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, n.URL()+path, key, prompt("lab/echo", said, false))
			var got struct {
				Model   string
				Choices []struct{ Message struct{ Content string } }
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK || got.Model != "lab/echo" ||
				len(got.Choices) != 1 || got.Choices[0].Message.Content != said {
				t.Errorf("%d: %s", answer.StatusCode, body)
			}
		}
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, n.URL()+"/openai/v1/chat/completions", key,
			prompt("lab/echo", "count", true))
		if answer.StatusCode != http.StatusOK || !strings.Contains(body, `"content": "2"`) ||
			!strings.HasSuffix(body, "data: [DONE]\n\n") || strings.Contains(body, id.String()) {
			t.Errorf("%d: %q", answer.StatusCode, body)
		}
	}
	// The deployment itself is its owner's.
	answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, c.Follower().URL()+"/openai/v1/chat/completions", key,
		prompt(id.String(), "x", false))
	if answer.StatusCode != http.StatusNotFound || !strings.Contains(body, "lab/echo") {
		t.Errorf("%d: %s", answer.StatusCode, body)
	}
}

// tokensOf returns what an organization has used of the last of its models.
func tokensOf(c *nodetest.Cluster, account nodetest.Account) (total compute.TokenTotal) {
	view := c.Follower().Peer().View()
	org, _ := view.OrgBySlug(account.Slug)
	for _, total = range view.TokenTotals(org.ID) {
	}
	return total
}

// checkKeptAlive reads streams one after the other on one connection.
func checkKeptAlive(t *testing.T, url, key string) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for i := range 3 {
		reused := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/openai/v1/chat/completions", prompt("lab/echo", "count", true))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		answer, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") || reused != (i > 0) {
			t.Errorf("stream %d: %q, %v, on a used connection: %t", i, body, err, reused)
		}
	}
	checkPipelined(t, url, key)
}

// checkPipelined sends a second request while a stream is answered: the answer is whole,
// and the connection ends after it, because the second request was not kept.
func checkPipelined(t *testing.T, url, key string) {
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body, _ := io.ReadAll(prompt("lab/echo", "slow", true))
	fmt.Fprintf(conn, "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		key, len(body), body)
	r := bufio.NewReader(conn)
	for line := ""; !strings.HasPrefix(line, "data: "); {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n\r\n0\r\n\r\n") || strings.Contains(string(rest), "HTTP/") {
		t.Errorf("after the first event came %q, %v", rest, err)
	}
}

// checkLeft leaves streams before the engine has said its usage: tokens that were sent
// are charged, up to the hold.
func checkLeft(t *testing.T, c *nodetest.Cluster, account nodetest.Account) {
	url := c.Follower().URL() + "/openai/v1/chat/completions"
	for _, test := range []struct {
		limit  string
		events int
		most   int64
	}{{`,"max_tokens":5`, 20, 5}, {"", 3, 1024}} {
		before := tokensOf(c, account)
		body := `{"model":"lab/echo","stream":true,"messages":[{"role":"user","content":"endless"}]` + test.limit + "}"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+account.Key)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(answer.Body)
		for range 2 * test.events { // Each is followed by an empty line.
			lines.Scan()
		}
		answer.Body.Close()
		var used compute.TokenTotal
		nodetest.Eventually(t, endWait, "the charge for a stream that was left", func() bool {
			used = tokensOf(c, account)
			return used.Requests == before.Requests+1
		})
		if n, p := used.Completion-before.Completion, used.Prompt-before.Prompt; n < min(int64(test.events), test.most) || n > test.most ||
			p < 10 || p > int64(len(body)) {
			t.Errorf("after %d events of at most %d it is charged for %d and %d tokens", test.events, test.most, p, n)
		}
	}
}

// checkTokenMoney asks a model as two organizations until the credits of one are out:
// each answer is charged.
func checkTokenMoney(t *testing.T, c *nodetest.Cluster, rich, poor nodetest.Account) {
	asked, counts := c.Follower(), modelSeries(t, c)
	url := asked.URL() + "/openai/v1/chat/completions"
	used := func(account nodetest.Account) compute.TokenTotal { return tokensOf(c, account) }
	before, group := used(rich), sync.WaitGroup{}
	for i := range 8 {
		group.Go(func() {
			for range 5 {
				answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url, rich.Key, prompt("lab/echo", "x", i%2 == 0))
				if answer.StatusCode != http.StatusOK {
					t.Errorf("%d: %s", answer.StatusCode, body)
				}
			}
		})
	}
	group.Wait()
	// Whole answers have 3 and 5 tokens, streams 3 and 3.
	after := used(rich)
	if n, p, q := after.Requests-before.Requests, after.Prompt-before.Prompt, after.Completion-before.Completion; n != 40 ||
		p != 40*3 || q != 20*5+20*3 {
		t.Errorf("%d requests used %d and %d tokens", n, p, q)
	}
	if got, want := after.Charged-before.Charged, 100*compute.Credits(40*3)+200*(20*5+20*3); got != want {
		t.Errorf("they cost %s, want %s", got, want)
	}
	mustRise(t, c, asked, counts, map[string]float64{
		`berth_inference_requests_total{code="200",model="lab/echo"}`:           40,
		`berth_inference_tokens_total{model="lab/echo",type="prompt"}`:          40 * 3,
		`berth_inference_tokens_total{model="lab/echo",type="completion"}`:      20*5 + 20*3,
		`berth_inference_time_to_first_token_seconds_count{model="lab/echo"}`:   20, // Streams have one.
		`berth_inference_time_per_output_token_seconds_count{model="lab/echo"}`: 20,
		`berth_inference_queue_time_seconds_count{model="lab/echo"}`:            40,
		`berth_inference_request_duration_seconds_count{model="lab/echo"}`:      40,
	})
	for _, n := range c.Nodes {
		for series, want := range map[string]float64{
			`berth_inference_replicas{model="lab/echo",status="wanted"}`: 1, `berth_inference_replicas{model="lab/echo",status="ready"}`: 1,
			`berth_inference_requests_running{model="lab/echo"}`: 0, `berth_inference_requests_waiting{model="lab/echo"}`: 0,
		} {
			if got := seriesOf(t, n.URL(), series); got != want {
				t.Errorf("%s at %s is %v, want %v", series, n.Config.Name, got, want)
			}
		}
	}
	counts = modelSeries(t, c)
	// This one may cost more than there is.
	const dear = `{"model":"lab/echo","max_tokens":1000000,"prompt":"x"}`
	answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url, poor.Key, strings.NewReader(dear))
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(body, `"code":"insufficient_quota"`) {
		t.Errorf("%d: %s", answer.StatusCode, body)
	}
	answer, body = mustAsk(t, http.DefaultClient, http.MethodPost, url, poor.Key, prompt("lab/echo", "x", false))
	if answer.StatusCode != http.StatusOK || used(poor).Requests != 1 {
		t.Errorf("%d: %s, %d counted", answer.StatusCode, body, used(poor).Requests)
	}
	mustRise(t, c, asked, counts, map[string]float64{
		`berth_inference_requests_total{code="403",model="lab/echo"}`:      1,
		`berth_inference_requests_total{code="200",model="lab/echo"}`:      1,
		`berth_inference_tokens_total{model="lab/echo",type="prompt"}`:     3,
		`berth_inference_tokens_total{model="lab/echo",type="completion"}`: 5,
		`berth_inference_queue_time_seconds_count{model="lab/echo"}`:       1,
		`berth_inference_request_duration_seconds_count{model="lab/echo"}`: 2,
	})
}

// modelSeries returns, by node, the series of metrics about models, once no request is under way.
// Histograms are there with their counts.
func modelSeries(t *testing.T, c *nodetest.Cluster) map[*nodetest.Node]map[string]float64 {
	t.Helper()
	all := make(map[*nodetest.Node]map[string]float64)
	for _, n := range c.Nodes {
		nodetest.Eventually(t, endWait, "no request to be under way", func() bool {
			return seriesOf(t, n.URL(), `berth_inference_requests_running{model="lab/echo"}`) == 0
		})
		all[n] = make(map[string]float64)
		for line := range strings.Lines(mustFetch(t, n.URL()+"/metrics")) {
			series, text, labelled := strings.Cut(strings.TrimSpace(line), "} ")
			if !labelled || !strings.HasPrefix(series, "berth_inference_") || strings.Contains(series, "_bucket{") || strings.Contains(series, "_sum{") {
				continue
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			all[n][series+"}"] = value
		}
	}
	return all
}

// mustRise checks by how much the series of metrics about models have risen at the node that was
// asked: no others have, and none at other nodes.
func mustRise(
	t *testing.T, c *nodetest.Cluster, asked *nodetest.Node, before map[*nodetest.Node]map[string]float64, want map[string]float64,
) {
	t.Helper()
	for n, series := range modelSeries(t, c) {
		rose := make(map[string]float64)
		for name, value := range series {
			if more := value - before[n][name]; more != 0 {
				rose[name] = more
			}
		}
		if n == asked && !maps.Equal(rose, want) || n != asked && len(rose) > 0 {
			t.Errorf("at %s, where asked is %s, metrics have risen by %v, want %v", n.Config.Name, asked.Config.Name, rose, want)
		}
	}
}
