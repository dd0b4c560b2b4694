package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// framings are headers that frame a body, of which at least one reader in the world
// thinks otherwise than another.
func framings() map[string]string {
	out := make(map[string]string)
	for name, coding := range map[string]string{
		"chunked": " chunked", "no space": "chunked", "a tab": "\tchunked", "capitals": " CHUNKED", "mixed case": " Chunked",
		"a space behind": " chunked ", "a tab behind": " chunked\t", "quoted": ` "chunked"`, "single quotes": " 'chunked'",
		"a parameter": " chunked;q=0", "a comma before": " ,chunked", "a comma behind": " chunked,", "twice in one": " chunked, chunked",
		"identity before": " identity, chunked", "identity behind": " chunked, identity", "gzip before": " gzip, chunked",
		"gzip behind": " chunked, gzip", "identity": " identity", "another": " xchunked", "cut": " chunke", "longer": " chunkedx",
		"nothing": "", "a vertical tab": " \x0bchunked", "a form feed": " \x0cchunked", "NUL": " chunked\x00",
		"a NEL": " chunked\x85", "a no-break space": "\u00a0chunked", "folded": "\r\n chunked", "folded with a tab": "\r\n\tchunked",
		"a colon": ": chunked", "a line feed": "\n chunked", "a carriage return": " chunked\r",
	} {
		out["the coding with "+name] = "Transfer-Encoding:" + coding + "\r\n"
	}
	for name, field := range map[string]string{
		"a space before the colon": "Transfer-Encoding : chunked", "a tab before the colon": "Transfer-Encoding\t: chunked",
		"a NUL in the name": "Transfer-Enc\x00oding: chunked", "a space before the name": " Transfer-Encoding: chunked",
		"a line before": "X: y\nTransfer-Encoding: chunked", "a carriage return before": "X: y\rTransfer-Encoding: chunked",
		"two codings":                  "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
		"two codings in other letters": "Transfer-Encoding: identity\r\ntransfer-encoding: chunked",
		"an empty first coding":        "Transfer-Encoding:\r\n" + "Transfer-Encoding: chunked",
	} {
		out[name] = field + "\r\n"
	}
	return out
}

// lengths are headers with the length of a body. Together with a coding, or with one
// another, each is ambiguous.
func lengths(exact int) map[string]string {
	is := fmt.Sprintf("Content-Length: %d\r\n", exact)
	return map[string]string{
		"its length": is, "no length": "Content-Length: 0\r\n", "the length of a chunk": "Content-Length: 5\r\n",
		"two lengths": is + "Content-Length: 5\r\n",
	}
}

// smuggles returns requests with a second one in their bodies.
func smuggles() map[string]string {
	const second = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
	const body = "0\r\n\r\n" + second
	out := make(map[string]string)
	for _, head := range []string{"POST " + root + "/auth/refresh", "GET /livez"} {
		start := head + " HTTP/1.1\r\nHost: a\r\n"
		for coding, te := range framings() {
			for length, cl := range lengths(len(body)) {
				out[head+": "+coding+" and "+length] = start + te + cl + "\r\n" + body
				out[head+": "+length+" and "+coding] = start + cl + te + "\r\n" + body
			}
		}
		for _, value := range []string{"+40", "-40", "0x28", "4 0", "40, 40", "40;", "40.0", "4e1", "\x0b40", "40\x00", "०", "18446744073709551656", "_40"} {
			out[head+": the length "+value] = start + "Content-Length: " + value + "\r\n\r\n" + body
		}
	}
	return out
}

// TestSmuggling sends requests about whose end two readers could disagree, each with
// another one in its body, to a server and a worker. Each is refused and closes its
// connection: the second one is never answered.
func TestSmuggling(t *testing.T) {
	w := newWorld(t)
	_, worker := w.newWorker()
	tried, answered := 0, 0
	for node, of := range map[string]*world{"server": w, "worker": worker} {
		of.listen()
		for name, text := range smuggles() {
			tried++
			if got, rest := of.wireAnswers(text); rest != "" || !slices.Equal(got, []int{400}) {
				answered++
				t.Errorf("%s: %s: answered %v %s", node, strings.ToValidUTF8(name, "?"), got, rest)
			}
		}
		of.mustDo("GET", "/user/status", w.adaKey, nil, nil)
	}
	t.Logf("measured: %d requests with another one inside, on a server and a worker: %d were answered twice", tried, answered)
	if tried < 300 {
		t.Errorf("only %d were tried", tried)
	}
}
