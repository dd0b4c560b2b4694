//go:build long

package node_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// paidModel is the id by which organizations ask for the model of a drill.
const paidModel = "lab/llama"

// buyer is an organization that asks for a published model that computes.
type buyer struct {
	*engineDrill

	account            nodetest.Account
	prompt, completion int64 // Tokens that the engine said it used for what was answered.
}

// TestEngineIsPaidFor charges exactly what the engine says that it used, while the node of
// the replica, the leader, and the node that was asked are killed in the middle of streams.
func TestEngineIsPaidFor(t *testing.T) {
	t.Parallel() // It mostly waits.
	d := newLlamaDrill(t)
	if _, err := d.root.SetModel(t.Context(), paidModel, wire.NewModel{
		Deployment: d.id.String(), Prompt: 100 * compute.Credit, Completion: 200 * compute.Credit,
	}); err != nil {
		t.Fatal(err)
	}
	b := &buyer{engineDrill: d, account: d.c.MustAccount("buyer")}
	before := b.credits()
	for _, p := range d.c.Nodes {
		b.buys(p)
	}
	b.finishes(b.stream(d.c.Nodes[0], 50))
	for _, p := range d.c.Nodes {
		b.embeds(p)
	}
	b.mustPayFor(before, "answers and embeddings of every node and a stream")

	host := d.host()
	by := d.other(host)
	r, body := b.stream(by, 16_000)
	host.Kill()
	rest, err := io.ReadAll(r)
	body.Close()
	if err != nil || !strings.Contains(string(rest), `"code":"replica_failed"`) {
		t.Errorf("the stream of a killed node ends with %q, %v", rest[max(len(rest)-300, 0):], err)
	}
	d.back(host)
	mustDeployment(t, d.api, d.id, "ready")
	b.buys(by)
	b.mustPayFor(before, "a stream whose replica was lost, which is free")

	host = d.host()
	leader := d.leaderBut(host)
	r, body = b.stream(d.other(host, leader), 300)
	leader.Kill()
	b.finishes(r, body)
	b.mustPayFor(before, "a stream that was charged to a new leader")
	d.back(leader)

	host = d.host()
	router := d.other(host)
	_, body = b.stream(router, 16_000)
	router.Kill()
	body.Close()
	b.buys(host)
	d.back(router)
	b.buys(router)
	b.mustPayFor(before, "a stream that was under way at the node that was killed")
	nodetest.Eventually(t, ledgerWait, "nothing to be held, and all to be in the ledger", func() bool {
		now := b.credits()
		return now.Held == 0 && before.Remaining-now.Remaining == b.price()
	})
	b.mustPayFor(before, "all of it, once the ledger has it")
	report, err := b.client().Usage(t.Context(), client.UsageQuery{GroupBy: "model"})
	if err != nil || report.Total.Credits != b.price() {
		t.Errorf("%s is charged, want %s: %v", report.Total.Credits, b.price(), err)
	}
}

// buys has a node answer once.
func (b *buyer) buys(p *nodetest.Process) {
	b.Helper()
	const body = `{"model":"` + paidModel + `","messages":[{"role":"user","content":"Hello"}],"max_tokens":6}`
	var reply reply
	var text string
	nodetest.Eventually(b, endWait, "an answer that is paid for", func() bool {
		reply, text = mustAsk(b.T, http.DefaultClient, http.MethodPost, p.URL+"/openai/v1/chat/completions", b.account.Key,
			strings.NewReader(body))
		return reply.StatusCode != http.StatusServiceUnavailable // The node or the replica has just started.
	})
	if reply.StatusCode != http.StatusOK {
		b.Fatalf("%d: %s", reply.StatusCode, text)
	}
	b.used((&asked{T: b.T}).parse(text))
}

// embeds has a node embed two texts.
func (b *buyer) embeds(p *nodetest.Process) {
	b.Helper()
	reply, text := mustAsk(b.T, http.DefaultClient, http.MethodPost, p.URL+"/openai/v1/embeddings", b.account.Key,
		strings.NewReader(`{"model":"`+paidModel+`","input":["Once upon a time","Hello"]}`))
	c := (&asked{T: b.T}).parse(text)
	if reply.StatusCode != http.StatusOK || len(c.Data) != 2 || c.Usage == nil || c.Usage.PromptTokens == 0 ||
		c.Usage.CompletionTokens != 0 {
		b.Fatalf("%d: %s", reply.StatusCode, text)
	}
	b.prompt += int64(c.Usage.PromptTokens)
}

// stream begins a stream, and returns it after its first event.
func (b *buyer) stream(p *nodetest.Process, tokens int) (*bufio.Reader, io.Closer) {
	b.Helper()
	body := fmt.Sprintf(`{"model":"%s","prompt":"Once upon a time","max_tokens":%d,"stream":true,"temperature":0}`, paidModel, tokens)
	return (&asked{T: b.T, url: p.URL, key: b.account.Key}).begin(body)
}

// finishes reads a stream to its end, and counts what the engine says that it used.
func (b *buyer) finishes(r *bufio.Reader, body io.Closer) {
	b.Helper()
	defer body.Close()
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(rest)), "data: [DONE]") {
		b.Fatalf("the stream ends with %q, %v", rest[max(len(rest)-300, 0):], err)
	}
	for line := range strings.Lines(string(rest)) {
		if data, is := strings.CutPrefix(line, "data: {"); is && strings.Contains(data, `"usage":{`) {
			b.used((&asked{T: b.T}).parse("{" + data))
		}
	}
}

// used counts what the engine says that it used.
func (b *buyer) used(c completion) {
	b.Helper()
	if c.Usage == nil || c.Usage.CompletionTokens == 0 {
		b.Fatalf("an answer without usage: %+v", c)
	}
	b.prompt += int64(c.Usage.PromptTokens)
	b.completion += int64(c.Usage.CompletionTokens)
}

// credits returns the money of the organization.
func (b *buyer) credits() wire.Credits {
	b.Helper()
	c, err := b.client().Credits(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func (b *buyer) client() *client.Client {
	var urls []string
	for _, p := range b.c.Nodes {
		urls = append(urls, p.URL)
	}
	return nodetest.MustClient(b.T, b.account.Key, urls...)
}

// mustPayFor checks that what was answered so far is charged, once.
func (b *buyer) mustPayFor(before wire.Credits, what string) {
	b.Helper()
	report, err := b.client().Usage(b.Context(), client.UsageQuery{GroupBy: "model"})
	if err != nil {
		b.Fatal(err)
	}
	if got := report.Total; got.PromptTokens != b.prompt || got.CompletionTokens != b.completion {
		b.Errorf("%s: %d and %d tokens are charged, and the engine used %d and %d",
			what, got.PromptTokens, got.CompletionTokens, b.prompt, b.completion)
	}
	price := b.price()
	if report.Total.Credits > price {
		b.Errorf("%s: %s is charged, want at most %s", what, report.Total.Credits, price)
	}
	if paid := before.Remaining - b.credits().Remaining; paid > price {
		b.Errorf("%s: the ledger has charged %s, more than %s", what, paid, price)
	}
}

// price returns what the tokens cost that the engine said it used.
func (b *buyer) price() compute.Credits {
	return 100*compute.Credits(b.prompt) + 200*compute.Credits(b.completion)
}
