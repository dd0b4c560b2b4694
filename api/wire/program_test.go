package wire_test

import (
	"strings"
	"testing"
)

// TestPrograms checks that a start names exactly one thing to execute, and the
// bounds of its arguments and its input.
func TestPrograms(t *testing.T) {
	long := strings.Repeat("x", 1<<17)
	for _, tt := range []struct{ name, body, want string }{
		{"code", `{"code":"1","args":["-x",""],"name":"a.b-1"}`, ""},
		{"module", `{"module":"pkg.train","args":["1"]}`, ""},
		{"command", `{"command":["./run.sh","x"]}`, ""},
		{"script", `{"script":"src/train.py","bundle_id":"0198c0de-0000-7000-8000-000000000001"}`, ""},
		{"base64", `{"code":"1","stdin_base64":"/w=="}`, ""},
		{"none", `{"args":["x"]}`, "body.code: missing"},
		{"empty code", `{"code":""}`, "body.code: string_too_short"},
		{"null code", `{"code":null}`, "body.code: string_type"},
		{"two", `{"code":"1","module":"x"}`, "body.code: value_error"},
		{"arguments of a command", `{"command":["x"],"args":["y"]}`, "body.args: value_error"},
		{"no program", `{"command":["","y"]}`, "body.command.0: value_error"},
		{"empty command", `{"command":[]}`, "body.code: missing"},
		{"option as module", `{"module":"-c"}`, "body.module: string_pattern_mismatch"},
		{"script without bundle", `{"script":"a.py"}`, "body.script: value_error"},
		{"script outside", `{"script":"../a.py","bundle_id":"x"}`, "body.script: value_error"},
		{"NUL", `{"code":"1","args":["a\u0000"]}`, "body.args.0: value_error"},
		{"long argument", `{"code":"1","args":["` + long + `"]}`, "body.args.0: string_too_long;body.args.0: value_error"},
		{"long arguments", `{"code":"1","args":["` + long[1:] + `","` + long[1:] + `","x"]}`, "body.args: value_error"},
		{"no base64", `{"code":"1","stdin_base64":"?"}`, "body.stdin_base64: value_error"},
		{"two inputs", `{"code":"1","stdin":"a","stdin_base64":"YQ=="}`, "body.stdin_base64: value_error"},
		{"large input", `{"code":"1","stdin":"` + strings.Repeat("é", 1<<19+1) + `"}`, "body.stdin: value_error"},
		{"name with space", `{"code":"1","name":"a b"}`, "body.name: string_pattern_mismatch"},
		{"imports without code", `{"module":"x","prior_imports":["import os"]}`, "body.prior_imports: value_error"},
	} {
		_, bad := faults(tt.body)
		if got := strings.NewReplacer("[", "", "]", "", " ", ".", ": ", ": ").Replace(strings.Join(bad, ";")); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
