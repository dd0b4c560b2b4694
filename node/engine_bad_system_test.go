package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/client"
	"berth/compute"
	"berth/node/nodetest"
)

// soon is the answer_wait of the last node of TestServerless.
const soon = 10 * time.Second

// mustWriteRaw writes what the scripted engine answers to "raw NAME".
func mustWriteRaw(t *testing.T, c *nodetest.Cluster, name, answer string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.Nodes[0].Config.Inference.Models, name), []byte(answer), 0o644); err != nil {
		t.Fatal(err)
	}
}

// wholeAnswer returns an answer of an engine whose body is not a stream. In its body
// DEPLOYMENT stands for the id of the deployment.
func wholeAnswer(status int, kind, body string) string {
	const idBytes = 36
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), kind,
		len(strings.ReplaceAll(body, "DEPLOYMENT", strings.Repeat("-", idBytes))), body)
}

// streamAnswer returns an answer that lasts until the engine closes the connection.
func streamAnswer(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body
}

// dearPrompt returns a request to the published model whose estimate is more than half of the
// credits of a new organization.
func dearPrompt(text string, stream bool) *strings.Reader {
	return strings.NewReader(fmt.Sprintf(
		`{"model":"lab/echo","max_tokens":300000,"stream":%t,"messages":[{"role":"user","content":%q}]}`, stream, text))
}

// codeOfModel returns the code of an error of the OpenAI API.
func codeOfModel(body string) string {
	var e struct {
		Error struct{ Code, Type, Message string }
	}
	if json.Unmarshal([]byte(body), &e) != nil || e.Error.Message == "" || e.Error.Type == "" {
		return "no envelope"
	}
	return e.Error.Code
}

// checkBadEngine has a published model's engine answer what it should not, or not at all. The
// client of a follower gets a clear answer. Each request sets aside more than half of the
// credits, so that it is refused if the hold of the one before was not released.
func checkBadEngine(t *testing.T, c *nodetest.Cluster, api *client.Client, id compute.ExecutionID) {
	const junk = "<html>\x00\xff"
	const wrongUsage = `{"model":"DEPLOYMENT","choices":[{"message":{"content":"12345"}}],"usage":{"prompt_tokens":-7,"completion_tokens":"many"}}`
	asked := c.Nodes[len(c.Nodes)-1]
	mustNotLead(t, c, asked)
	url, account := asked.URL()+"/openai/v1/chat/completions", c.MustAccount("unlucky")
	for name, answer := range map[string]string{
		"noise": "\x00\x01 this is no HTTP\r\n\r\n",
		"html":  wholeAnswer(http.StatusOK, "application/json", junk),
		"usage": wholeAnswer(http.StatusOK, "application/json", wrongUsage),
		"trace": wholeAnswer(http.StatusInternalServerError, "text/plain", "Traceback"),
		"short": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"choices\":[{",
		"lines": streamAnswer("data: {\"broken\n\n" + junk),
	} {
		mustWriteRaw(t, c, name, answer)
	}
	ask := func(text string, stream bool) (reply, string) {
		t.Helper()
		return mustAsk(t, http.DefaultClient, http.MethodPost, url, account.Key, dearPrompt(text, stream))
	}
	for _, test := range []struct {
		name   string
		stream bool
		status int
		code   string // Code of an error; "" for an answer of the engine,
		body   string // which is this.
	}{
		{name: "noise", status: http.StatusServiceUnavailable, code: compute.DetailReplicaLost},
		{name: "html", status: http.StatusOK, body: junk},
		{name: "usage", status: http.StatusOK, body: strings.ReplaceAll(wrongUsage, "DEPLOYMENT", "lab/echo")},
		{name: "trace", status: http.StatusInternalServerError, body: "Traceback"},
		{name: "short", status: http.StatusServiceUnavailable, code: "replica_failed"},
		{name: "lines", stream: true, status: http.StatusOK, body: "data: {\"broken\n\n" + junk},
	} {
		answer, body := ask("raw "+test.name, test.stream)
		if answer.StatusCode != test.status || test.code != "" && codeOfModel(body) != test.code || test.code == "" && body != test.body {
			t.Errorf("%s: %d: %q", test.name, answer.StatusCode, body)
		}
		if test.code != "" && (strings.Contains(body, "HTTP") || strings.Contains(body, "127.0.0.1")) {
			t.Errorf("%s: the answer says more than a user needs: %s", test.name, body)
		}
	}
	said := func(line string) {
		t.Helper()
		nodetest.Eventually(t, endWait, "the engine to say: "+line, func() bool {
			logs, err := api.DeploymentLogs(t.Context(), id)
			return err == nil && strings.Contains(fmt.Sprint(logs), line)
		})
	}
	checkSilentEngine(t, c, asked, account, said)
	checkBelated(t, c, said)
	// An engine without a usage that can be read is paid by sizes: a token for 4 bytes. All
	// else was free.
	size := int64(dearPrompt("raw usage", false).Len())
	mustUse(t, c, account, compute.TokenTotal{Requests: 1, Prompt: size / 4, Completion: 2})
	// A prompt of 10 MB costs more than there is, and a larger one than 16 MiB is refused.
	for _, test := range []struct {
		bytes, status int
		code          string
	}{{10_000_000, http.StatusForbidden, "insufficient_quota"}, {16<<20 + 1, http.StatusRequestEntityTooLarge, "context_length_exceeded"}} {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url, account.Key, prompt("lab/echo", strings.Repeat("x", test.bytes), false))
		if answer.StatusCode != test.status || codeOfModel(body) != test.code {
			t.Errorf("a prompt of %d bytes: %d: %.300s", test.bytes, answer.StatusCode, body)
		}
	}
}

// mustUse waits until an organization is charged for so many requests, and checks their
// tokens.
func mustUse(t *testing.T, c *nodetest.Cluster, account nodetest.Account, want compute.TokenTotal) {
	t.Helper()
	var used compute.TokenTotal
	nodetest.Eventually(t, endWait, "the charges of "+account.Slug, func() bool {
		used = tokensOf(c, account)
		return used.Requests >= want.Requests
	})
	if used.Requests != want.Requests || used.Prompt != want.Prompt || used.Completion != want.Completion {
		t.Errorf("%s is charged for %d requests with %d and %d tokens, want %d with %d and %d", account.Slug,
			used.Requests, used.Prompt, used.Completion, want.Requests, want.Prompt, want.Completion)
	}
}

// checkSilentEngine asks an engine that never answers, and one that stops in the middle of a
// stream. Both requests are free, and their holds are released.
func checkSilentEngine(t *testing.T, c *nodetest.Cluster, asked *nodetest.Node, account nodetest.Account, said func(line string)) {
	url, other := asked.URL()+"/openai/v1/chat/completions", c.MustAccount("unlucky-too")
	var group sync.WaitGroup
	group.Go(func() {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url, account.Key, dearPrompt("hold silent", false))
		if answer.StatusCode != http.StatusGatewayTimeout || codeOfModel(body) != "engine_timeout" {
			t.Errorf("of an engine that never answers: %d: %s", answer.StatusCode, body)
		}
	})
	group.Go(func() {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url, other.Key, dearPrompt("stuck", true))
		if answer.StatusCode != http.StatusOK || !strings.HasPrefix(body, `data: {"choices"`) || strings.Contains(body, "[DONE]") ||
			!strings.Contains(body, `"code":"engine_timeout"`) {
			t.Errorf("of an engine that stops: %d: %q", answer.StatusCode, body)
		}
	})
	group.Wait()
	said("hold silent left")
	said("stuck left")
	nodetest.Eventually(t, endWait, "the hold of a stream that was ended to be released", func() bool {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url, other.Key, dearPrompt("x", false))
		return isPaid(t, answer, body)
	})
	mustUse(t, c, other, compute.TokenTotal{Requests: 1, Prompt: 3, Completion: 5})
}

// isPaid reports whether a request is answered, and not refused because the credits are held.
func isPaid(t *testing.T, answer reply, body string) bool {
	t.Helper()
	if answer.StatusCode != http.StatusOK && (answer.StatusCode != http.StatusForbidden || codeOfModel(body) != "insufficient_quota") {
		t.Fatalf("%d: %s", answer.StatusCode, body)
	}
	return answer.StatusCode == http.StatusOK
}

// checkBelated leaves an engine that answers nevertheless. The hold of the request refuses
// another one before, and not afterwards. The answer that nobody got is free.
func checkBelated(t *testing.T, c *nodetest.Cluster, said func(line string)) {
	account, url := c.MustAccount("leaving"), c.Follower().URL()
	ask := func() bool {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, url+"/openai/v1/chat/completions", account.Key, dearPrompt("x", false))
		return isPaid(t, answer, body)
	}
	conn := beginWhole(t, url, account.Key, dearPrompt("belated", false))
	said("belated waits")
	if ask() {
		t.Error("a request is answered whose cost another one holds")
	}
	conn.Close()
	said("belated answers")
	nodetest.Eventually(t, endWait, "the hold of a client that left to be released", ask)
	mustUse(t, c, account, compute.TokenTotal{Requests: 1, Prompt: 3, Completion: 5})
}

// Answers of an engine that no JSON library would write so.
const (
	oddAnswer = "{ \"id\":\"chatcmpl-\\u00e4\" ,\t\"created\": 1.70e9,\r\n \"model\" : \"DEPLOYMENT\",\"odd\": [1e400, -0, \"\\ud83d\\ude00 ä\"]," +
		"\"choices\":[{\"message\":{\"content\":\"\\\"model\\\": \\\"DEPLOYMENT\\\"\"}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5,\"x\":null}}\n\n "
	oddStream = ": comment\r\n\r\nevent: x\ndata: {\"model\" :\"DEPLOYMENT\", \"choices\": [ {\"delta\":{\"content\":\"\\u00e4ä\"}} ]}\n\n" +
		"id: 7\ndata:{\"choices\":[{\"delta\":{}}] }\r\n\r\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n"
)

// checkVerbatim asks every node for answers whose bytes are known: the client gets them as the
// engine has sent them. The id of a published model is its own, and nothing else differs.
func checkVerbatim(t *testing.T, c *nodetest.Cluster, key, model string, id compute.ExecutionID) {
	mustWriteRaw(t, c, "odd", wholeAnswer(http.StatusOK, "application/json", oddAnswer))
	mustWriteRaw(t, c, "odd stream", streamAnswer(oddStream))
	for _, n := range c.Nodes {
		for text, sent := range map[string]string{"odd": oddAnswer, "odd stream": oddStream} {
			answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, n.URL()+"/openai/v1/chat/completions", key,
				prompt(model, "raw "+text, text != "odd"))
			want := sent
			for _, written := range []string{`"model" : `, `"model" :`} {
				want = strings.ReplaceAll(want, written+`"DEPLOYMENT"`, written+strconv.Quote(model))
			}
			want = strings.ReplaceAll(want, "DEPLOYMENT", id.String())
			if answer.StatusCode != http.StatusOK || body != want {
				t.Errorf("%s: %d: %q, and the engine sent %q", n.Config.Name, answer.StatusCode, body, want)
			}
		}
	}
}
