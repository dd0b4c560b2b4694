package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/wire"
)

// mutatedShare is the part of all mutated requests that are passed on.
const mutatedShare = 4

// passedTarget is what a mutated request is about.
type passedTarget struct {
	row  edge.Passed
	ids  []string // The caller's, another organization's and one of nobody.
	s3   []s3Request
	made wire.StorageCredentials
}

// passedTargets returns all that is asked, as cyd.
func (p *passing) passedTargets() (targets []passedTarget) {
	p.Helper()
	deployment, service := p.submit("deployment").String(), p.submit("service").String()
	cyd := p.cydKey
	p.cydKey = p.bobKey // So that the same helpers start things of bob's.
	foreignDeployment, foreignService := p.submit("deployment").String(), p.submit("service").String()
	p.cydKey = cyd
	own, bob := p.s3Credentials(p.cydKey), p.s3Credentials(p.bobKey)
	p.askS3(p.world, bob, s3Request{method: "PUT", path: "/" + bob.BucketName + "/kept", body: canary})
	for _, row := range edge.PassedOn() {
		target := passedTarget{row: row, ids: []string{service, service, foreignService, uuidText(9)}, made: own}
		if row.Model() {
			target.ids = []string{deployment, deployment, foreignDeployment, uuidText(9)}
		}
		if row.Signed {
			for _, bucket := range []string{own.BucketName, own.BucketName, bob.BucketName} {
				operations := s3Operations(bucket, "x")
				for _, name := range slices.Sorted(maps.Keys(operations)) {
					target.s3 = append(target.s3, operations[name])
				}
			}
		}
		targets = append(targets, target)
	}
	return targets
}

// passedBody returns a mutation of a body to a model, or anything for a program.
func (m mutator) passedBody(model bool, id string) string {
	sample := `{"model":"` + id + `","prompt":"x","max_tokens":2}`
	if !model && m.IntN(2) == 0 {
		return m.bytes(sample)
	}
	model = m.IntN(12) > 0
	fields := map[string]string{
		"prompt": `"x"`, "max_tokens": "2", "messages": `[{"role":"user","content":"x"}]`, "input": `["x"]`,
	}
	for _, name := range []string{
		"stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "messages", "prompt", "input", "user", "tools",
		"response_format", "best_of", "echo", "suffix",
	} {
		if m.IntN(4) == 0 {
			fields[name] = m.value(0)
		}
	}
	text := strings.TrimPrefix(m.object(fields, m.IntN(2)), "{")
	if model {
		text = `{"model":"` + id + `",` + text
	} else {
		text = `{"model":` + m.value(0) + "," + text
	}
	if m.IntN(16) == 0 {
		text = m.bytes(text)
	}
	return text
}

// passedHeaders returns headers that somebody on the way reads.
func (m mutator) passedHeaders() (header []string) {
	for _, name := range []string{
		"Accept", "Accept-Encoding", "Content-Type", "Content-Encoding", "Cookie", "Range", "If-Match", "If-None-Match", "If-Range",
		"X-Org-Slug", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Request-Id", "Idempotency-Key", "Te",
		"X-Amz-Date", "X-Amz-Copy-Source", "X-Amz-Acl", "X-Amz-Meta-A", "X-Amz-Decoded-Content-Length", "X-Amz-Trailer",
		"X-Amz-Checksum-Sha256", "X-Amz-Sdk-Checksum-Algorithm", "X-Amz-Tagging", "X-Amz-Storage-Class", "Origin", "Referer",
	} {
		value := pick(m, append(texts(), "bytes=0-1", "berth_service=x", "gzip", "application/json", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")...)
		if m.IntN(14) == 0 && printable(value) && value != "" {
			header = append(header, name, value)
		}
	}
	return header
}

// mutatedS3 returns a mutation of a request of S3, and its headers: most are signed as they are
// sent.
func (p *passing) mutatedS3(random mutator, target *passedTarget) (r s3Request, header []string) {
	r = pick(random, target.s3...)
	more := maps.Clone(r.header)
	if more == nil {
		more = map[string]string{}
	}
	extra := random.passedHeaders()
	late := random.IntN(6) == 0 // Changed behind the signature.
	for i := 0; i+1 < len(extra) && !late; i += 2 {
		more[extra[i]] = extra[i+1]
	}
	r.header = more
	if random.IntN(3) == 0 {
		join := "?"
		if strings.Contains(r.path, "?") {
			join = "&"
		}
		name := pick(random, "prefix", "delimiter", "max-keys", "marker", "continuation-token", "partNumber", "uploadId", "versionId", "x")
		r.path += join + name + "=" + url.QueryEscape(pick(random, texts()...))
	}
	if random.IntN(3) == 0 {
		r.body = random.bytes(r.body + pick(random, texts()...))
	}
	header = p.signed(target.made, r)
	if late {
		header = append(header, extra...)
		r.body = random.bytes(r.body)
	}
	return r, header
}

// TestMutatedPassedOnRequests sends mutations of good requests to all paths that are passed on. None
// fails inside the server, or shows or reaches what is another organization's.
func TestMutatedPassedOnRequests(t *testing.T) {
	p := newPassing(t)
	p.plant()
	p.client = &http.Client{
		Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial() }, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p.listen()
	random := mutator{rand.New(rand.NewPCG(*mutationSeed, 1))}
	targets := p.passedTargets()
	byStatus, handled, foreign := make(map[int]int), 0, 0
	total := *mutations / mutatedShare
	for n := range total {
		if n%10_000 == 9_999 {
			p.world.pass(time.Second) // Rates allow for more.
		}
		target := &targets[n%len(targets)]
		var method, path, body string
		bearer, header := p.cydKey, random.passedHeaders()
		if target.row.Signed {
			var r s3Request
			r, header = p.mutatedS3(random, target)
			method, path, body, bearer = r.method, edge.S3Root+r.path, r.body, ""
		} else {
			method = pick(random, append(slices.Clone(target.row.Methods), "GET", "POST")...)
			if target.row.Methods != nil && random.IntN(8) > 0 {
				method = target.row.Methods[0]
			}
			id := pick(random, target.ids...)
			if random.IntN(8) == 0 {
				id = url.PathEscape(pick(random, texts()...))
			}
			path, _ = passedRequest(target.row, method, id)
			if path += "?" + url.QueryEscape(pick(random, texts()...)); random.IntN(4) > 0 {
				path, _, _ = strings.Cut(path, "?")
			}
			if method != http.MethodGet {
				body = random.passedBody(target.row.Model(), id)
			}
		}
		a := p.fetch(method, path, bearer, []byte(body), header)
		byStatus[a.status]++
		if reached(a.status) && a.status != http.StatusForbidden {
			handled++
		}
		where := fmt.Sprintf("request %d of seed %d: %s %s %q with %q: %d %s", n, *mutationSeed, method, path, body, header, a.status, a.body)
		if bytes.Contains(a.body, []byte(canary)) {
			foreign++
			t.Errorf("another organization's: %s", where)
		}
		if a.status >= 500 && !documentedFailure(a) && a.status != http.StatusNotImplemented {
			t.Error(where)
		}
		switch kind := a.header.Get("Content-Type"); {
		case method == http.MethodHead:
		case kind == "application/json" && !target.row.Signed && !json.Valid(a.body), // Objects may have any type.
			kind == "application/xml" && a.status >= 400 && len(a.body) > 0 && xml.Unmarshal(a.body, new(struct{})) != nil:
			t.Errorf("no %s: %s", kind, where)
		}
	}
	for id, times := range p.replicas.reached {
		if e, ok := p.machine.View().AnyExecution(id); !ok || e.Org != p.cyd {
			t.Errorf("%d requests reach %s, which is another organization's", times, id)
		}
	}
	var counts []string
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		counts = append(counts, fmt.Sprintf("%d × %d", byStatus[status], status))
	}
	t.Logf("measured: %d mutated requests that are passed on, %d reached who answers, %d show what is another organization's: %s",
		total, handled, foreign, strings.Join(counts, ", "))
	if byStatus[200] == 0 || handled < total/2 {
		t.Error("the mutations are too wild")
	}
}
