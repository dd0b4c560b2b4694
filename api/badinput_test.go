package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"berth/api/wire"
)

// faultsOf returns the faults of an answer as "loc: type".
func faultsOf(t testing.TB, a answer) []string {
	t.Helper()
	var faults wire.Faults
	if err := json.Unmarshal(a.body, &faults); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	var out []string
	for _, f := range faults.Detail {
		loc := make([]string, len(f.Loc))
		for i, part := range f.Loc {
			loc[i] = fmt.Sprint(part)
		}
		out = append(out, strings.Join(loc, ".")+": "+f.Type)
	}
	return out
}

// code is the start of a body that lacks nothing.
const code = `{"code":"1",`

// mount is the same for code that sees stored files.
const mount = code + `"enable_s3_mount":true,`

func TestMalformedStarts(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		name, body string
		want       []string
	}{
		{"no body", "", []string{"body: missing"}},
		{"not JSON", `{"code":`, []string{"body.8: json_invalid"}},
		{"two documents", `{"code":"1"}{}`, []string{"body.12: json_invalid"}},
		{"not an object", `["code"]`, []string{"body: model_attributes_type"}},
		{"null", `null`, []string{"body: model_attributes_type"}},
		{"duplicate key", code + `"timeout":1,"timeout":2}`, []string{"body.timeout: value_error"}},
		{"nested duplicate key", code + `"env":{"A":"1","A":"2"}}`, []string{"body.env.A: value_error"}},
		{"too deep", strings.Repeat("[", 33) + strings.Repeat("]", 33), []string{"body.33: json_invalid"}},
		{"deep in an unknown field", code + `"x":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + "}", []string{"body.48: json_invalid"}},
		{"not UTF-8", "{\"code\":\"\xff\"}", []string{"body.0: json_invalid"}},
		{"missing code", `{}`, []string{"body.code: missing"}},
		{"empty code", `{"code":""}`, []string{"body.code: string_too_short"}},
		{"null code", `{"code":null}`, []string{"body.code: string_type"}},
		{"code of wrong type", `{"code":1}`, []string{"body.code: string_type"}},
		{
			"requirements", code + `"requirements_content":"numpy\n-e .\nx @ https://host/x"}`,
			[]string{"body.requirements_content: value_error", "body.requirements_content: value_error"},
		},
		{"volume without a name", code + `"volumes":[{"path":"/data"}]}`, []string{"body.volumes.0.name: missing"}},
		{"volumes of wrong type", code + `"volumes":[1]}`, []string{"body.volumes.0: dict_type"}},
		{"volume in the system", code + `"volumes":[{"name":"a","path":"/usr"}]}`, []string{"body.volumes.0.path: value_error"}},
		{"mount in the system", mount + `"s3_mount_path":"/usr/lib"}`, []string{"body.s3_mount_path: value_error"}},
		{"mount over everything", mount + `"s3_mount_path":"/"}`, []string{"body.s3_mount_path: value_error"}},
		{"mount that climbs", mount + `"s3_mount_path":"/mnt/../etc"}`, []string{"body.s3_mount_path: value_error"}},
		{"mount nowhere", mount + `"s3_mount_path":"mnt"}`, []string{"body.s3_mount_path: value_error"}},
		{"mount of a long path", mount + `"s3_mount_path":"/mnt/` + strings.Repeat("x", 512) + `"}`, []string{"body.s3_mount_path: string_too_long"}},
		{"outputs that climb", code + `"outputs_prefix":"a/../b"}`, []string{"body.outputs_prefix: value_error"}},
		{"outputs in a long folder", code + `"outputs_prefix":"` + strings.Repeat("x", 513) + `"}`, []string{"body.outputs_prefix: string_too_long"}},
		{"mount of wrong type", code + `"enable_s3_mount":"perhaps"}`, []string{"body.enable_s3_mount: bool_parsing"}},
		{"mount over a volume", mount + `"volumes":[{"name":"a"},{"name":"s3"}]}`, []string{"body.volumes.1.path: value_error"}},
		{"mount above a volume", mount + `"volumes":[{"name":"a","path":"/mnt/s3/a"}]}`, []string{"body.volumes.0.path: value_error"}},
		{"mount below a volume", mount + `"volumes":[{"name":"a","path":"/mnt"}]}`, []string{"body.volumes.0.path: value_error"}},
		{"volumes in one place", code + `"volumes":[{"name":"a"},{"name":"a"}]}`, []string{"body.volumes.1.path: value_error"}},
		{"scratch nowhere", code + `"scratch":"tape"}`, []string{"body.scratch: enum"}},
		{"timeout 0", code + `"timeout":0}`, []string{"body.timeout: greater_than_equal"}},
		{"timeout 601", code + `"timeout":601}`, []string{"body.timeout: less_than_equal"}},
		{"timeout in words", code + `"timeout":"long"}`, []string{"body.timeout: int_parsing"}},
		{"timeout list", code + `"timeout":[1]}`, []string{"body.timeout: int_type"}},
		{"timeout true", code + `"timeout":true}`, []string{"body.timeout: int_type"}},
		{"timeout fraction", code + `"timeout":1.5}`, []string{"body.timeout: int_from_float"}},
		{"timeout huge", code + `"timeout":99999999999999999999}`, []string{"body.timeout: int_parsing_size"}},
		{"profile pattern", code + `"execution_type":"a b"}`, []string{"body.execution_type: string_pattern_mismatch"}},
		{"profiles differ", code + `"execution_type":"cpu","machine_type":"gpu.a100"}`, []string{"body.machine_type: value_error"}},
		{"file name is a path", code + `"file_name":"../x"}`, []string{"body.file_name: value_error"}},
		{"callback not https", code + `"user_callback_urls":["http://example.com"]}`, []string{"body.user_callback_urls.0: url_scheme"}},
		{
			"callback no URL", code + `"user_callback_urls":["https://", "x"]}`,
			[]string{"body.user_callback_urls.0: url_parsing", "body.user_callback_urls.1: url_parsing"},
		},
		{"callback with password", code + `"user_callback_urls":["https://a:b@example.com"]}`, []string{"body.user_callback_urls.0: value_error"}},
		{"callback secret in host", code + `"user_callback_urls":["https://$x.com/"]}`, []string{"body.user_callback_urls.0: value_error"}},
		{
			"callback too long", code + `"user_callback_urls":["https://e.com/` + strings.Repeat("x", 2048) + `"]}`,
			[]string{"body.user_callback_urls.0: string_too_long"},
		},
		{
			"eleven callbacks", code + `"user_callback_urls":[` + strings.TrimSuffix(strings.Repeat(`"https://e.com",`, 11), ",") + `]}`,
			[]string{"body.user_callback_urls: too_long"},
		},
		{"callbacks no list", code + `"user_callback_urls":"https://e.com"}`, []string{"body.user_callback_urls: list_type"}},
		{"max_credits negative", code + `"max_credits":-1}`, []string{"body.max_credits: greater_than"}},
		{"max_credits zero", code + `"max_credits":0}`, []string{"body.max_credits: greater_than"}},
		{"max_credits too fine", code + `"max_credits":0.0000001}`, []string{"body.max_credits: decimal_parsing"}},
		{"max_credits explodes", code + `"max_credits":1e999999999}`, []string{"body.max_credits: less_than_equal"}},
		{"max_credits of wrong type", code + `"max_credits":[]}`, []string{"body.max_credits: decimal_type"}},
		{"priority 101", code + `"priority":101}`, []string{"body.priority: less_than_equal"}},
		{"priority -1", code + `"priority":-1}`, []string{"body.priority: greater_than_equal"}},
		{"network unknown", code + `"network":"all"}`, []string{"body.network: enum"}},
		{"eleven tags", code + `"tags":["1","2","3","4","5","6","7","8","9","10","11"]}`, []string{"body.tags: too_long"}},
		{"tag of wrong type", code + `"tags":["1",2]}`, []string{"body.tags.1: string_type"}},
		{"variable's name", code + `"env":{"1A":"x"}}`, []string{"body.env.1A: value_error"}},
		{"variable of ours", code + `"env":{"BERTH_X":"x"}}`, []string{"body.env.BERTH_X: value_error"}},
		{"variable of wrong type", code + `"env":{"A":1}}`, []string{"body.env.A: string_type"}},
		{
			"variable too large", code + `"env":{"A":"` + strings.Repeat("\U0001F600", 32767) + `","BCDE":"` +
				strings.Repeat("\U0001F600", 32767) + `"}}`,
			[]string{"body.env.BCDE: value_error"},
		},
		{"variables too large", code + `"env":` + largeEnv() + `}`, []string{"body.env: value_error"}},
		{"env no object", code + `"env":[]}`, []string{"body.env: dict_type"}},
		{"preemptible of wrong type", code + `"preemptible":3}`, []string{"body.preemptible: bool_type"}},
		{"import_files no JSON", code + `"import_files":"{"}`, []string{"body.import_files.1: json_invalid"}},
		{"import_files no object", code + `"import_files":"[1]"}`, []string{"body.import_files: dict_type"}},
		{"import_files an object", code + `"import_files":{"a.py":""}}`, []string{"body.import_files: string_type"}},
		{"import file no text", code + `"import_files":"{\"a.py\":1}"}`, []string{"body.import_files.a.py: string_type"}},
		{
			"import file too long", code + `"import_files":"{\"` + strings.Repeat("x", 256) + `\":\"\"}"}`,
			[]string{"body.import_files." + strings.Repeat("x", 256) + ": value_error"},
		},
		{"import file outside", code + `"import_files":"{\"../a.py\":\"\"}"}`, []string{"body.import_files.../a.py: value_error"}},
		{
			"import file too deep", code + `"import_files":"{\"` + strings.Repeat("a/", 32) + `a\":\"\"}"}`,
			[]string{"body.import_files." + strings.Repeat("a/", 32) + "a: value_error"},
		},
		{"too many directories", code + `"import_files":"` + manyDirs() + `"}`, []string{"body.import_files: value_error"}},
		{"import file absolute", code + `"import_files":"{\"/a.py\":\"\"}"}`, []string{"body.import_files./a.py: value_error"}},
		{"import file in a file", code + `"import_files":"{\"a\":\"\",\"a/b\":\"\"}"}`, []string{"body.import_files.a/b: value_error"}},
		{"import file twice", code + `"import_files":"{\"a\":\"\",\"a\":\"\"}"}`, []string{"body.import_files.a: value_error"}},
		{"negative cell", code + `"nbcode":-1}`, []string{"body.nbcode: greater_than_equal"}},
		{"cell without code", `{"module":"x","nbcode":1}`, []string{"body.nbcode: value_error"}},
		{"state of a script", code + `"kernel_state":"eA=="}`, []string{"body.kernel_state: value_error"}},
		{"state that is none", code + `"nbcode":2,"kernel_state":"x!"}`, []string{"body.kernel_state: value_error"}},
		{"state of wrong type", code + `"nbcode":2,"kernel_state":{}}`, []string{"body.kernel_state: string_type"}},
		{"prior_imports of wrong type", code + `"prior_imports":"import os"}`, []string{"body.prior_imports: list_type"}},
		{"everything at once", `{"timeout":601,"priority":"x","network":1,"tags":{},"machine_type":"?"}`, []string{
			"body.machine_type: string_pattern_mismatch", "body.priority: int_parsing", "body.tags: list_type",
			"body.network: string_type", "body.code: missing", "body.timeout: less_than_equal",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := w.send("POST", "/execution/streaming/start", w.adaKey, tc.body)
			if a.status != 422 {
				t.Fatalf("= %d %s", a.status, a.body)
			}
			if got := faultsOf(t, a); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("faults are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
	if total, _, _ := w.machine.View().Totals(w.org("ada-lab")); total != 0 {
		t.Errorf("%d executions were accepted", total)
	}
}

func TestAcceptedStarts(t *testing.T) {
	w := newWorld(t)
	for name, body := range map[string]string{
		"numbers in words":     code + `"timeout":"60","priority":" 7 "}`,
		"whole fraction":       code + `"timeout":60.0}`,
		"nulls are absent":     code + `"timeout":null,"env":null,"tags":null,"kernel_state":null,"import_files":null}`,
		"both names the same":  code + `"execution_type":"CPU","machine_type":"cpu"}`,
		"unknown fields":       code + `"x":{"y":[1]}}`,
		"no mount, and a path": code + `"enable_s3_mount":false,"s3_mount_path":"/usr"}`,
		"a mount of no path":   code + `"s3_mount_path":""}`,
		"empty strings":        code + `"import_files":"","requirements_content":"","file_name":""}`,
		"exponent":             code + `"max_credits":1e-2}`,
		"credits in words":     code + `"max_credits":"0.25"}`,
		"trailing white space": code + `"nbcode":0}` + "\n\t ",
	} {
		t.Run(name, func(t *testing.T) {
			if a := w.send("POST", "/execution/streaming/start", w.adaKey, body); a.status != 200 {
				t.Errorf("= %d %s", a.status, a.body)
			}
		})
	}
}

func TestImpossibleStarts(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct{ name, path, body, code, detail string }{
		{
			"unknown profile", "streaming", code + `"execution_type":"gpu.z9"}`, "unknown_profile",
			"valid profiles: cpu, cpu.16x, cpu.2x, cpu.32x, cpu.4x, cpu.8x, gpu.a100, gpu.a100.2x, gpu.a100.4x, gpu.h100, gpu.h100.2x, gpu.l40s, gpu.l40s.2x, gpu.l40s.4x, gpu.t4, gpu.t4.2x, gpu.t4.4x",
		},
		{"too many GPUs", "streaming", code + `"execution_type":"gpu.h100.8x"}`, "never_fits", "valid profiles"},
		{"preemptible", "gpu_selection", code + `"preemptible":true}`, "selection_preemptible", "cannot be preemptible"},
		{"unknown GPU type", "gpu_selection", code + `"gpu_types":["z9"]}`, "unknown_profile", "z9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := w.send("POST", "/execution/"+tc.path+"/start", w.adaKey, tc.body)
			if a.status != 400 || a.code() != tc.code || !strings.Contains(string(a.body), tc.detail) {
				t.Errorf("= %d %s, want 400 %s with %q", a.status, a.body, tc.code, tc.detail)
			}
		})
	}
	w.want(422, "", "POST", "/execution/streaming/start", w.adaKey, code+`"max_retries":11}`)
	w.want(422, "", "POST", "/execution/streaming/start", w.adaKey, code+`"max_retries":-1}`)
	w.want(422, "", "POST", "/execution/gpu_selection/start", w.adaKey, code+`"repeats":6}`)
	w.want(422, "", "POST", "/execution/gpu_selection/start", w.adaKey, code+`"repeats":0}`)
	w.want(422, "", "POST", "/execution/gpu_selection/start", w.adaKey, code+`"deadline_seconds":0}`)
	w.want(422, "", "POST", "/execution/gpu_selection/start", w.adaKey, code+`"deadline_seconds":604801}`)
	w.want(422, "", "POST", "/execution/gpu_selection/start", w.adaKey, code+`"early_stop":"no"}`)
	w.want(422, "", "POST", "/execution/gpu_selection/start", w.adaKey, code+`"objective":"best"}`)
	w.want(422, "", "POST", "/execution/gpu_selection/start", w.adaKey,
		code+`"gpu_types":[`+strings.TrimSuffix(strings.Repeat(`"t4",`, 17), ",")+`]}`)
	w.want(403, "credits_exhausted", "POST", "/execution/gpu_selection/start", w.adaKey, code+`"max_credits":1000}`)
}

func TestBadQueries(t *testing.T) {
	w := newWorld(t)
	for query, want := range map[string]string{
		"limit=0":            "query.limit: greater_than_equal",
		"limit=1001":         "query.limit: less_than_equal",
		"limit=x":            "query.limit: int_parsing",
		"offset=-1":          "query.offset: greater_than_equal",
		"status=done":        "query.status: enum",
		"type=job":           "query.type: enum",
		"from=yesterday":     "query.from: datetime_parsing",
		"limit=%ff&offset=x": "query.limit: value_error,query.offset: int_parsing",
	} {
		a := w.send("GET", "/billing/history?"+query, w.adaKey, nil)
		if a.status != 422 {
			t.Errorf("%s = %d %s", query, a.status, a.body)
			continue
		}
		if got := strings.Join(faultsOf(t, a), ","); got != want {
			t.Errorf("%s: faults are %s, want %s", query, got, want)
		}
	}
	a := w.want(422, "", "GET", "/billing/history?limit=1&status=failed&limit=2&status=x", w.adaKey, nil)
	if got := strings.Join(faultsOf(t, a), ","); got != "query.limit: value_error,query.status: value_error" {
		t.Errorf("faults of parameters that are there twice are %s", got)
	}
}

func TestBadBodies(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct{ path, body, want string }{
		{"/auth/login", `{}`, "body.email: missing,body.password: missing"},
		{"/auth/login", `{"email":"a@b.c","password":7}`, "body.password: string_type"},
		{"/auth/refresh", `{}`, "body.refresh_token: missing"},
		{"/orgs/ada-lab/api-keys", `{"name":""}`, "body.name: string_too_short"},
		{"/orgs/ada-lab/api-keys", `{"name":"` + strings.Repeat("n", 256) + `"}`, "body.name: string_too_long"},
		{"/orgs/ada-lab/api-keys", `{"name":"n","expires_at":"soon"}`, "body.expires_at: datetime_parsing"},
		{"/orgs/ada-lab/api-keys", `{"name":"n","expires_at":5}`, "body.expires_at: datetime_type"},
		{
			"/admin/users", `{"email":"nobody","password":"hunter2","org_slug":"-"}`,
			"body.password: string_too_short,body.org_slug: string_too_short,body.email: value_error",
		},
		{
			"/admin/join-tokens", `{"role":"boss","ttl":3601,"uses":0}`,
			"body.role: enum,body.ttl: less_than_equal,body.uses: greater_than_equal",
		},
		{"/billing/grant", `{"org":"ada-lab","credits":0}`, "body.credits: greater_than"},
	} {
		a := w.send("POST", tc.path, w.adaKey, tc.body)
		if a.status != 422 {
			t.Errorf("%s %s = %d %s", tc.path, tc.body, a.status, a.body)
			continue
		}
		if got := strings.Join(faultsOf(t, a), ","); got != tc.want {
			t.Errorf("%s %s: faults are %s, want %s", tc.path, tc.body, got, tc.want)
		}
		if strings.Contains(string(a.body), "hunter2") {
			t.Errorf("the answer repeats a password: %s", a.body)
		}
	}
	w.want(400, "unknown_org", "POST", "/billing/grant", rootToken, `{"org":"nobody","credits":1}`)
	w.want(409, "email_taken", "POST", "/admin/users", rootToken,
		`{"email":"Ada@example.com","password":"0123456789","org_slug":"ada-two"}`)
	w.want(415, "unsupported_media", "POST", "/auth/login", "", `{}`, "Content-Type", "text/plain")
	w.want(415, "", "POST", "/auth/login", "", `{}`, "Content-Encoding", "gzip")
}

func TestBadTokens(t *testing.T) {
	w := newWorld(t)
	broken := w.adaKey[:len(w.adaKey)-1] + "!"
	other := "lk_" + strings.Repeat("0", 59)
	for name, bearer := range map[string]string{
		"none": "", "short": "x", "not a key": other, "broken key": broken,
		"no token": strings.Repeat("x", 100), "three parts": strings.Repeat("a", 50) + ".b.c",
		"algorithm none": "eyJhbGciOiJub25lIiwidHlwIjoiYXQrand0In0.eyJzdWIiOiJ4In0.",
	} {
		a := w.want(401, "unauthenticated", "GET", "/billing/credits", bearer, nil)
		if a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", name)
		}
	}
	a := w.send("GET", "/billing/credits", "", nil, "Authorization", "Basic "+w.adaKey)
	if a.status != 401 {
		t.Errorf("Basic = %d", a.status)
	}
}

func TestBadPaths(t *testing.T) {
	w := newWorld(t)
	id := w.start("cpu").String()
	for _, path := range []string{
		"/execution/nothing", "/execution/" + strings.ToUpper(id) + "x", "/execution/" + uuidText(9),
		"/execution/%2e%2e", "/execution/" + id + "%2Ftiming", "/execution/" + id + "/nothing", "/execution/" + uuidText(9) + "/explain",
		"/execution/nothing/start", "/vms/list",
	} {
		w.want(404, "not_found", "GET", path, w.adaKey, nil)
	}
	w.mustDo("GET", "/execution/"+strings.ToUpper(id), w.adaKey, nil, nil)
	w.want(405, "method_not_allowed", "PUT", "/execution/"+id, w.adaKey, nil)
	w.want(405, "method_not_allowed", "GET", "/auth/login", "", nil)
	w.want(404, "not_found", "GET", "/nothing", "", nil)
	// With a slash at the end, the same, and never a redirect.
	for _, path := range []string{"/workloads/list/", "/execution/" + id + "/", "/livez/", "/health/ping/"} {
		w.mustDo("GET", path, w.adaKey, nil, nil)
	}
	w.mustDo("POST", "/execution/streaming/start/", w.adaKey, `{"code":"1"}`, nil)
}

// manyDirs returns import files, as JSON in JSON, in too many directories.
func manyDirs() string {
	var files []string
	for i := range 34 {
		files = append(files, fmt.Sprintf(`\"%d/%sx\":\"\"`, i, strings.Repeat("a/", 30)))
	}
	return "{" + strings.Join(files, ",") + "}"
}

// largeEnv returns variables, as JSON, that are too large together.
func largeEnv() string {
	var env []string
	for i := range 33 {
		env = append(env, fmt.Sprintf(`"A%d":"%s"`, i, strings.Repeat("x", 32<<10)))
	}
	return "{" + strings.Join(env, ",") + "}"
}

// TestServicesLeaveNoOutputs refuses a service whose outputs are to be copied.
func TestServicesLeaveNoOutputs(t *testing.T) {
	w := newWorld(t)
	a := w.send("POST", root+"/execution/service/start", w.adaKey, `{"code":"1","outputs_prefix":"runs"}`)
	if a.status != 422 || !strings.Contains(string(a.body), "outputs_prefix") {
		t.Errorf("= %d %.300s", a.status, a.body)
	}
}
