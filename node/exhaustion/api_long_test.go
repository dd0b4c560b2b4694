//go:build long

package exhaustion_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"berth/loop"
)

// start is the path that starts executions.
const start = api + "/execution/streaming/start"

// largeBody is a start that is refused once it is read: nobody has such a machine.
func largeBody() string {
	return `{"code":"pass","machine_type":"none","import_files":"{\"f\":\"` + strings.Repeat("x", 7<<20) + `\"}"}`
}

func idleAndMalformed(ctx context.Context, a *attacker) {
	all := [][]byte{
		nil,
		[]byte("GET / HTTP/1.1\r\nHost: b\r\nX: " + strings.Repeat("y", 7<<10)),
		bytes.Repeat([]byte("\x16\x03\x01\x02\x00"), 1000),
		[]byte("POST " + start + " HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n"),
		bytes.Repeat([]byte("GET /none HTTP/1.1\r\nHost: b\r\n\r\n"), 200),
	}
	a.hold(ctx, server, 1500, func(i int) []byte { return all[i%len(all)] })
}

func bodiesOfStrangers(ctx context.Context, a *attacker) {
	part := largeBody()[:9<<10]
	a.hold(ctx, server, 1000, func(i int) []byte {
		head := request("POST", start, []string{"", "lk_" + strings.Repeat("x", 43)}[i%2], "")
		head = bytes.Replace(head, []byte("\r\n\r\n"), fmt.Appendf(nil, "\r\nContent-Length: %d\r\n\r\n", 8000+i%2*7<<20), 1)
		return append(head, part[:7999]...)
	})
}

// unfinished is a start whose last byte does not come.
func unfinished(key string) func(int) []byte {
	whole := request("POST", start, key, largeBody())
	return func(int) []byte { return whole[:len(whole)-1] }
}

func bodiesOfKey(ctx context.Context, a *attacker) {
	a.hold(ctx, server, 64, unfinished(a.attacker.Key))
}

func bodiesThroughWorker(ctx context.Context, a *attacker) {
	a.hold(ctx, worker, 64, unfinished(a.attacker.Key))
}

func signIns(ctx context.Context, a *attacker) {
	a.repeat(ctx, server, 100, func(i, k int) []byte {
		email, password := a.attacker.Email, a.attacker.Password
		if i%2 == 1 {
			email, password = fmt.Sprintf("u%d-%d@example.com", i, k), "not the password"
		}
		return request("POST", api+"/auth/login", "", fmt.Sprintf(`{"email":%q,"password":%q}`, email, password))
	})
}

func refreshes(ctx context.Context, a *attacker) {
	body := `{"refresh_token":"x"` + strings.Repeat(`,"a":[]`, 1100) + `}`
	a.repeat(ctx, server, 200, func(int, int) []byte { return request("POST", api+"/auth/refresh", "", body) })
}

func unreadDocuments(ctx context.Context, a *attacker) {
	all := [][]byte{
		bytes.Repeat(request("GET", "/openapi.json", "", ""), 50),
		bytes.Repeat(request("GET", "/metrics", "", ""), 50),
	}
	a.hold(ctx, server, 1000, func(i int) []byte { return all[i%2] })
}

func largeAnswersUnread(ctx context.Context, a *attacker) {
	one := bytes.Repeat(request("GET", api+"/execution/"+a.large.String(), a.attacker.Key, ""), 4)
	a.hold(ctx, server, 500, func(int) []byte { return one })
}

func largeAnswers(ctx context.Context, a *attacker) {
	one := request("GET", api+"/execution/"+a.large.String(), a.attacker.Key, "")
	a.repeat(ctx, server, 100, func(int, int) []byte { return one })
}

func listsUnread(ctx context.Context, a *attacker) {
	all := [][]byte{
		request("GET", api+"/workloads/list", a.attacker.Key, ""),
		request("GET", api+"/billing/history?limit=1000", a.attacker.Key, ""),
	}
	a.hold(ctx, server, 500, func(i int) []byte { return all[i%2] })
}

func historyScans(ctx context.Context, a *attacker) {
	one := request("GET", api+"/billing/history?limit=1000&status=aborted", a.attacker.Key, "")
	a.repeat(ctx, server, 100, func(int, int) []byte { return one })
}

func refusedStarts(ctx context.Context, a *attacker) {
	whole := request("POST", start, a.attacker.Key, largeBody())
	a.repeat(ctx, server, 32, func(int, int) []byte { return whole })
}

func refusedStartsRelayed(ctx context.Context, a *attacker) {
	whole := request("POST", start, a.attacker.Key, largeBody())
	a.repeat(ctx, worker, 32, func(int, int) []byte { return whole })
}

// streams asks for the output of one execution, hangs up, and asks again.
func (a *attacker) streams(ctx context.Context, node int) {
	one := request("GET", "/api/v1/stream/"+a.endless.String(), a.attacker.Key, "")
	for _, part := range []time.Duration{attackTime / 2, attackTime} {
		within, cancel := context.WithTimeout(ctx, part)
		a.hold(within, node, 250, func(int) []byte { return one })
		cancel()
		loop.Sleep(ctx, time.Second/2)
	}
}

func outputStreams(ctx context.Context, a *attacker) { a.streams(ctx, server) }

func outputStreamsRelayed(ctx context.Context, a *attacker) { a.streams(ctx, worker) }
