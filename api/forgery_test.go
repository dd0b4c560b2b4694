package api_test

import (
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"berth/compute"
)

// checked returns the body of an API key with its checksum, which a forger can make.
func checked(body string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum, out := crc32.ChecksumIEEE([]byte(body)), make([]byte, 6)
	for i := len(out) - 1; i >= 0; i-- {
		out[i], sum = digits[sum%62], sum/62
	}
	return body + string(out)
}

// forgedKeys returns API keys that a forger makes who knows the form of keys, their
// prefixes and the own key.
func forgedKeys(known, victim string) map[string]string {
	const mark, lookup, secret = 3, 10, 43
	body := func(key string) string { return key[:mark+lookup+secret] }
	id := func(key string) string { return key[mark : mark+lookup] }
	out := map[string]string{
		"the victim's lookup with the own secret": checked("lk_" + id(victim) + body(known)[mark+lookup:]),
		"the own lookup with the victim's prefix": checked("lk_" + victim[mark:8] + body(known)[8:]),
		"zeros":                  checked("lk_" + strings.Repeat("0", lookup+secret)),
		"the victim's and zeros": checked("lk_" + id(victim) + strings.Repeat("0", secret)),
		"the prefix alone":       victim[:8],
		"no checksum":            body(victim),
		"two checksums":          victim + victim[len(victim)-6:],
		"lower case":             strings.ToLower(victim),
		"a space inside":         victim[:20] + " " + victim[21:],
		"a second mark":          "lk_" + victim,
		"another mark":           "sk_" + victim[mark:],
		"a hash":                 "lk_" + strings.Repeat("ab", 29) + "c",
		"twice":                  victim + "," + victim,
		"quoted":                 `"` + victim + `"`,
		"encoded":                strings.ReplaceAll(victim, "_", "%5f"),
		"in base64":              base64.StdEncoding.EncodeToString([]byte(victim)),
		"a wildcard":             checked("lk_" + id(victim) + strings.Repeat("A", secret-1) + "z"),
	}
	for i := mark; i < mark+lookup+secret; i += 2 {
		other := byte('A')
		if victim[i] == other {
			other = 'B'
		}
		out[fmt.Sprintf("another character at %d", i)] = checked(victim[:i] + string(other) + body(victim)[i+1:])
	}
	return out
}

// forgedTexts returns variants of a secret text, as a forger makes them who has
// most of it.
func forgedTexts(text string) map[string]string {
	out := map[string]string{
		"nothing": "", "a character": "x", "cut": text[:len(text)-1], "longer": text + "A", "padded": text + "=",
		"reversed": text[1:] + text[:1], "upper case": strings.ToUpper(text), "zeros": strings.Repeat("A", len(text)),
		"of another alphabet": strings.Repeat("+", len(text)), "twice": text + text,
	}
	for i := 0; i < len(text); i += 4 {
		other := byte('A')
		if text[i] == other {
			other = 'B'
		}
		out[fmt.Sprintf("another character at %d", i)] = text[:i] + string(other) + text[i+1:]
	}
	delete(out, map[bool]string{true: "upper case"}[strings.ToUpper(text) == text])
	return out
}

// TestForgeries presents credentials that are not genuine, of each kind, to a server and
// a worker: none opens anything.
func TestForgeries(t *testing.T) {
	m := newMatrix(t)
	_, worker := m.newWorker()
	tried, accepted := 0, 0
	try := func(name string, a answer, want ...int) {
		t.Helper()
		tried++
		for _, status := range want {
			if a.status == status {
				return
			}
		}
		accepted++
		t.Errorf("%s: %d %s", name, a.status, a.body)
	}
	id := m.submit("streaming")
	invite := m.invited()
	for place, node := range map[string]*world{"server": m.world, "worker": worker} {
		for name, key := range forgedKeys(m.bobKey, m.cydKey) {
			try(place+": key: "+name, node.send("GET", "/user/status", key, nil), 401, 422)
		}
		for name, token := range forgedTexts(m.session.RefreshToken) {
			try(place+": refresh token: "+name, node.send("POST", "/auth/refresh", "", map[string]any{"refresh_token": token}), 401, 422)
		}
		for name, token := range forgedTexts(m.streamToken(id)) {
			path := "/api/v1/stream/" + id.String() + "?token=" + strings.NewReplacer("+", "%2b", "=", "%3d").Replace(token)
			try(place+": stream token: "+name, node.send("GET", path, "", nil), 401)
		}
		try(place+": the stream token of another", node.send("GET",
			"/api/v1/stream/"+id.String()+"?token="+m.streamToken(compute.ExecutionID{UUID: uuid(5)}), "", nil), 401)
		for name, token := range forgedTexts(invite) {
			path := "/invites/" + strings.NewReplacer("+", "%2b", "=", "%3d").Replace(token) + "/accept"
			try(place+": invite: "+name, node.send("POST", path, m.cydKey, nil), 404, 405)
		}
		for name, token := range forgedTexts(rootToken) {
			try(place+": root token: "+name, node.send("GET", "/admin/nodes", token, nil), 401)
		}
	}
	t.Logf("measured: %d forged keys and tokens: %d were accepted", tried, accepted)
	m.mustDo("POST", "/auth/refresh", "", map[string]any{"refresh_token": m.session.RefreshToken}, nil)
	if tried < 150 {
		t.Errorf("only %d were tried", tried)
	}
}
