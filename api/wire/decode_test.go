package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"berth/api/wire"
	"berth/compute"
)

// faults returns the faults of a start body as "loc: type".
func faults(body string) (*wire.PythonStart, []string) {
	in, f := new(wire.PythonStart), new(wire.Faults)
	wire.Decode([]byte(body), in, f)
	var out []string
	for _, fault := range f.Detail {
		out = append(out, fmt.Sprint(fault.Loc)+": "+fault.Type)
	}
	return in, out
}

func TestDecodeDefaults(t *testing.T) {
	in, bad := faults(`{"code":"1"}`)
	if bad != nil {
		t.Fatal(bad)
	}
	want := wire.PythonStart{
		Start: wire.Start{
			Priority: 50, Network: "egress", DisconnectGrace: 600, Space: wire.Space{Scratch: "disk"},
		},
		Program: wire.Program{Code: "1", Input: []byte{}},
		Mount:   wire.Mount{S3MountPath: "/mnt/s3"},
	}
	if !reflect.DeepEqual(*in, want) {
		t.Errorf("defaults are %+v, want %+v", *in, want)
	}
	if in.Profile() != "cpu" {
		t.Errorf("profile is %s", in.Profile())
	}
}

func TestFaultsAreBounded(t *testing.T) {
	_, bad := faults(`{"code":"1","env":{` + strings.Repeat(`"A":"1",`, 5000) + `"B":"1"}}`)
	if len(bad) != 100 {
		t.Errorf("%d faults, want 100", len(bad))
	}
}

func TestInputsAreBounded(t *testing.T) {
	f := new(wire.Faults)
	wire.Decode([]byte(`{"code":"1","network":"`+strings.Repeat("x", 1000)+`","env":{"A":"s3cret\u0000"},"priority":"s"}`), new(wire.PythonStart), f)
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Detail) != 3 || len(f.Detail[1].Input) > 256 {
		t.Errorf("faults are %s", data)
	}
	if strings.Contains(string(data), "s3cret") || strings.Contains(string(data), "xxx") {
		t.Errorf("the answer repeats too much: %s", data)
	}
}

func TestTimeoutBound(t *testing.T) {
	for limit, want := range map[time.Duration]int{0: 0, 60 * time.Second: 0, 59 * time.Second: 1} {
		f := new(wire.Faults)
		(&wire.Start{Timeout: 60}).CheckTimeout(0, limit, f)
		if len(f.Detail) != want {
			t.Errorf("limit %s: faults are %v", limit, f.Detail)
		}
	}
}

func TestDefaultTimeout(t *testing.T) {
	for _, test := range []struct {
		standard, limit time.Duration
		asked, want     int
	}{
		{0, time.Hour, 0, 60}, {0, 30 * time.Second, 0, 30}, {time.Hour, 2 * time.Hour, 0, 3600}, {time.Hour, 2 * time.Hour, 5, 5},
	} {
		f, start := new(wire.Faults), wire.Start{Timeout: test.asked}
		if start.CheckTimeout(test.standard, test.limit, f); start.Timeout != test.want || len(f.Detail) > 0 {
			t.Errorf("%+v: the limit is %d: %v", test, start.Timeout, f.Detail)
		}
	}
}

func TestInstants(t *testing.T) {
	for text, want := range map[string]string{
		"2026-12-31T00:00:00Z":           "2026-12-31T00:00:00.000Z",
		"2026-12-31T01:00:00.5+01:00":    "2026-12-31T00:00:00.500Z",
		"2026-12-31T00:00:00":            "2026-12-31T00:00:00.000Z",
		"2026-12-31":                     "2026-12-31T00:00:00.000Z",
		"31.12.2026":                     "",
		"0001-01-01T00:00:00Z":           "",
		"2026-12-31T00:00:00Z; DROP ALL": "",
	} {
		in, f := new(wire.NewKey), new(wire.Faults)
		wire.Decode(fmt.Appendf(nil, `{"name":"n","expires_at":%q}`, text), in, f)
		if got := in.ExpiresAt.String(); got != want || (len(f.Detail) > 0) != (want == "") {
			t.Errorf("%s is %q with %v, want %q", text, got, f.Detail, want)
		}
	}
}

func TestCredits(t *testing.T) {
	for text, want := range map[string]compute.Credits{
		"1": 1_000_000, "0.000001": 1, "1e-06": 1, "1.5E2": 150_000_000, `"2.25"`: 2_250_000, "1.500000000": 1_500_000,
	} {
		in, f := new(wire.Start), new(wire.Faults)
		wire.Decode([]byte(`{"max_credits":`+text+`}`), in, f)
		if in.MaxCredits != want || len(f.Detail) > 0 {
			t.Errorf("%s is %s with %v", text, in.MaxCredits, f.Detail)
		}
	}
	for _, text := range []string{"1e-07", "1e40", "true", `"one"`, `"1e"`, `""`, "99999999999999999999"} {
		f := new(wire.Faults)
		wire.Decode([]byte(`{"max_credits":`+text+`}`), new(wire.Start), f)
		if len(f.Detail) != 1 {
			t.Errorf("%s: faults are %v", text, f.Detail)
		}
	}
}

// TestLargeCredits says what the largest amount is, where one is larger.
func TestLargeCredits(t *testing.T) {
	const most = "Input should be less than or equal to 1152921504606.846976"
	for _, test := range []struct {
		body any
		text string
		want string
	}{
		{new(wire.Start), `{"max_credits":1152921504606.846976}`, ""},
		{new(wire.Start), `{"max_credits":1152921504606.846977}`, most},
		{new(wire.Start), `{"max_credits":9223372036854.775808}`, most},
		{new(wire.Start), `{"max_credits":99999999999999999999}`, most},
		{new(wire.Start), `{"max_credits":"1e40"}`, most},
		{new(wire.Start), `{"max_credits":1e300}`, most},
		{new(wire.Start), `{"max_credits":1e99999999999999999999}`, most},
		{new(wire.Start), `{"max_credits":1e-99999999999999999999}`, "no more than 6 decimal places"},
		{new(wire.Start), `{"max_credits":0e300}`, "greater than 0"},
		{new(wire.Start), `{"max_credits":0.0000001}`, "no more than 6 decimal places"},
		{new(wire.Grant), `{"org":"lab","credits":1e13}`, most},
		{new(wire.NewBudget), `{"max_credits":1e13}`, most},
		{new(wire.NewKey), `{"name":"a","max_credits":1e13}`, most},
		{new(wire.NewUserKey), `{"key_name":"a","max_credits":1e13}`, most},
		{new(wire.Checkout), `{"credits_amount":1e13}`, most},
		{new(wire.NewPrice), `{"price_per_hour":3600000}`, ""},
		{new(wire.NewPrice), `{"price_per_hour":3600000.000001}`, "less than or equal to 3600000"},
		{new(wire.NewPrice), `{"price_per_hour":1,"cost":1e20}`, "less than or equal to 3600000"},
		{new(wire.NewModel), `{"deployment_id":"01981f6e-5d2a-7c3b-9e4f-0a1b2c3d4e5f","prompt_price":1e20}`, "less than or equal to 1000"},
	} {
		f := new(wire.Faults)
		wire.Decode([]byte(test.text), test.body, f)
		if (len(f.Detail) == 0) != (test.want == "") || len(f.Detail) > 1 ||
			len(f.Detail) == 1 && !strings.HasSuffix(f.Detail[0].Msg, test.want) {
			t.Errorf("%T %s: %+v, want %q", test.body, test.text, f.Detail, test.want)
		}
	}
}

func TestLengthsAreOfCharacters(t *testing.T) {
	for _, tc := range []struct{ body, want string }{
		{`{"name":"` + strings.Repeat("ä", 255) + `"}`, ""},
		{`{"name":"` + strings.Repeat("ä", 256) + `"}`, "string_too_long"},
		{`{"email":"a@b","org_slug":"ab","password":"` + strings.Repeat("ö", 10) + `"}`, ""},
		{`{"email":"a@b","org_slug":"ab","password":"` + strings.Repeat("ö", 9) + `"}`, "string_too_short"},
		{`{"code":"1","file_name":"` + strings.Repeat("é", 127) + `"}`, ""},
		{`{"code":"1","file_name":"` + strings.Repeat("é", 128) + `"}`, "value_error"}, // Bytes, on disk.
		{`{"code":"1","user_callback_urls":["http://x/` + strings.Repeat("é", 2039) + `"]}`, "url_scheme"},
		{`{"code":"1","user_callback_urls":["http://x/` + strings.Repeat("é", 2040) + `"]}`, "string_too_long"},
	} {
		var in any = new(wire.NewKey)
		switch {
		case strings.Contains(tc.body, "password"):
			in = new(wire.NewUser)
		case strings.Contains(tc.body, "code"):
			in = new(wire.PythonStart)
		}
		f := new(wire.Faults)
		wire.Decode([]byte(tc.body), in, f)
		var got []string
		for _, fault := range f.Detail {
			got = append(got, fault.Type)
		}
		if strings.Join(got, ",") != tc.want {
			t.Errorf("%.60s...: faults are %v, want %s", tc.body, got, tc.want)
		}
	}
}

// TestTagsAreSound binds every field of every body once, so that a tag that
// cannot be read fails here and not at a request.
func TestTagsAreSound(t *testing.T) {
	for _, body := range []any{
		new(wire.PythonStart), new(wire.SelectionStart), new(wire.Login), new(wire.RefreshBody), new(wire.NewKey),
		new(wire.NewJoinToken), new(wire.NewUser), new(wire.Grant), new(wire.HistoryQuery), new(wire.LedgerQuery),
		new(wire.ExecutionQuery), new(wire.SelectionQuery),
	} {
		for _, value := range []string{`"x"`, `1`, `["x"]`, `{"x":"y"}`, `true`, `null`} {
			var members []string
			for _, field := range wire.Fields(reflect.TypeOf(body).Elem()) {
				members = append(members, fmt.Sprintf("%q:%s", field.Tag.Get("json"), value))
			}
			wire.Decode([]byte("{"+strings.Join(members, ",")+"}"), body, new(wire.Faults))
		}
	}
}

// FuzzRequestBody holds that no body makes the decoder panic, that accepted
// bodies obey the rules, and that refusals are valid JSON.
func FuzzRequestBody(f *testing.F) {
	for _, seed := range []string{
		`{"code":"print(1)"}`, `{"code":"1","timeout":"7","tags":["a"],"env":{"A":"b"}}`, `{"code":`, `[[[[`,
		`{"code":"1","import_files":"{\"a/b.py\":\"\"}","max_credits":1e-3}`, `{"code":"1","code":"2"}`, "{\"code\":\"\xff\"}",
		`{"code":"1","user_callback_urls":["https://example.com/${{ secrets.X }}"],"deadline_seconds":null,"gpu_types":["a"]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in, bad := new(wire.SelectionStart), new(wire.Faults)
		wire.Decode(data, in, bad)
		if len(bad.Detail) > 0 {
			for _, fault := range bad.Detail {
				if len(fault.Loc) == 0 || fault.Loc[0] != "body" || fault.Type == "" || fault.Msg == "" {
					t.Errorf("fault is %+v", fault)
				}
			}
			if _, err := json.Marshal(bad); err != nil {
				t.Errorf("faults of %q: %v", data, err)
			}
			return
		}
		switch {
		case in.Code == "" || in.Timeout < 0 || in.Priority < 0 || in.Priority > 100:
			t.Errorf("accepted %q as %+v", data, in)
		case len(in.CallbackURLs) > 10 || len(in.Tags) > 10 || len(in.GPUTypes) > 16 || in.MaxCredits < 0:
			t.Errorf("accepted too much of %q", data)
		}
		for name := range in.Files {
			if strings.HasPrefix(name, "/") || strings.Contains("/"+name+"/", "/../") {
				t.Errorf("accepted the path %q", name)
			}
		}
	})
}

// TestFaultsAreSmall repeats a key many times inside of others with long names. The
// answer does not repeat the names in full each time.
func TestFaultsAreSmall(t *testing.T) {
	const most = 32 << 10
	repeated := `{"a":0` + strings.Repeat(`,"a":0`, 200) + `}`
	deep := strings.Repeat(`{"`+strings.Repeat("n", 200)+`":`, 30) + repeated + strings.Repeat("}", 30)
	var wide []string
	for i := range 200 {
		wide = append(wide, fmt.Sprintf(`"%s%d":1`, strings.Repeat("A", 4000), i))
	}
	for name, body := range map[string]string{
		"one long name":           `{"` + strings.Repeat("é", 1<<19) + `":` + repeated + `}`,
		"a path of names":         deep,
		"many long names":         `{"code":"1","env":{` + strings.Join(wide, ",") + `}}`,
		"a name inside of a text": `{"code":"1","import_files":"{\"` + strings.Repeat("x", 1<<20) + `\":` + strings.ReplaceAll(repeated, `"`, `\"`) + `}"}`,
	} {
		f := new(wire.Faults)
		wire.Decode([]byte(body), new(wire.PythonStart), f)
		text, err := json.Marshal(f)
		if err != nil || len(f.Detail) == 0 || len(text) > most {
			t.Errorf("%s: %d faults of a body of %d bytes take %d bytes, %v", name, len(f.Detail), len(body), len(text), err)
		}
		if !utf8.Valid(text) || bytes.Contains(text, []byte(`\ufffd`)) {
			t.Errorf("%s: a name is cut inside of a character", name)
		}
	}
}

// FuzzQuery holds that no query makes the decoder panic, and that a page has bounds.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"limit=1&offset=2", "limit=%ff&type=python", "from=2026-01-01&to=x&status=failed", "parent=&limit=1e3", "limit=+7"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		query := make(map[string]string)
		for name := range values {
			query[name] = values.Get(name)
		}
		for _, in := range []any{
			new(wire.HistoryQuery), new(wire.LedgerQuery), new(wire.ExecutionQuery), new(wire.SelectionQuery),
			new(wire.ExplainQuery), new(wire.ReplayQuery), new(wire.StateQuery), new(wire.QuotaQuery), new(wire.RemovalQuery),
		} {
			bad := new(wire.Faults)
			wire.DecodeQuery(query, in, bad)
			if _, err := json.Marshal(bad); err != nil {
				t.Errorf("faults of %q: %v", text, err)
			}
			page, ok := in.(*wire.HistoryQuery)
			if ok && bad.Err() == nil && (page.Limit < 1 || page.Limit > 1000 || page.Offset < 0) {
				t.Errorf("accepted %q as %+v", text, page)
			}
		}
	})
}

func TestHalfSurrogatePairs(t *testing.T) {
	for text, want := range map[string]string{
		`\ud83d\ude00`:          "\U0001F600",
		`\uD83D\uDE00x`:         "\U0001F600x",
		`\\ud83d`:               `\ud83d`,
		`\ufffd`:                "\uFFFD",
		`\ud83d`:                "",
		`\ud83dx`:               "",
		`\ud83d\n`:              "",
		`\ud83d\ud83d\ude00`:    "",
		`\ude00`:                "",
		`\ude00\ud83d`:          "",
		`\\\ud83d`:              "",
		`\ud83d\ude00 \ud83d\\`: "",
	} {
		in, bad := faults(`{"code":"` + text + `"}`)
		if refused := len(bad) > 0; refused != (want == "") || !refused && in.Code != want {
			t.Errorf("%s is %q with faults %v, want %q", text, in.Code, bad, want)
		}
	}
}

// TestDecodeBoundsTokens checks that a document is given up at its token limit,
// whatever follows: the text behind is not JSON, which nobody finds out.
func TestDecodeBoundsTokens(t *testing.T) {
	const most = 16_384
	for _, tc := range []struct {
		name, begin, each, end string
		tokens                 int
	}{
		{"zeros", `{"code":"1","x":[`, "0,", "0]}", 1},
		{"lists", `{"code":"1","x":[`, "[],", "0]}", 1},
		{"members", `{"code":"1","x":{`, `"%d":0,`, `"":0}}`, 2},
	} {
		body := func(n int) string {
			var b strings.Builder
			b.WriteString(tc.begin)
			for i := range n {
				b.WriteString(strings.ReplaceAll(tc.each, "%d", strconv.Itoa(i)))
			}
			return b.String()
		}
		const around = 5 // The object, two names, a string and the list.
		last := (most-around)/tc.tokens - 1
		if _, bad := faults(body(last) + tc.end); bad != nil {
			t.Errorf("%s: a body at the limit has %v", tc.name, bad)
		}
		f := new(wire.Faults)
		wire.Decode([]byte(body(most)+tc.end), new(wire.PythonStart), f)
		if len(f.Detail) != 1 || f.Detail[0].Ctx["error"] != "more than 16384 names and values" {
			t.Errorf("%s: a body over the limit has %v", tc.name, f.Detail)
		}
	}
}
