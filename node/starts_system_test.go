package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/config"
	"berth/node/executor/docker/dockertest"
	"berth/node/nodetest"
)

// executionRoutes is where the routes of executions begin.
const executionRoutes = "/api/v2/external/execution/"

// badStart is a start body that is refused as a whole, and its faults.
type badStart struct {
	kind, body string
	faults     []string // As "loc: type", in their order.
}

// checkBadStarts sends start bodies, which are refused with all of their faults. Nothing is
// executed.
func checkBadStarts(t *testing.T, url, key string, rows map[string]badStart) {
	api := nodetest.MustClient(t, key, url)
	before, err := api.History(t.Context(), client.HistoryQuery{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range rows {
		answer, text := mustAsk(t, http.DefaultClient, http.MethodPost, url+executionRoutes+row.kind+"/start", key, strings.NewReader(row.body))
		if got := faultsIn(text); answer.StatusCode != http.StatusUnprocessableEntity || fmt.Sprint(got) != fmt.Sprint(row.faults) {
			t.Errorf("%s: %d with the faults\n%s\nwant\n%s\nin %.500s",
				name, answer.StatusCode, strings.Join(got, "\n"), strings.Join(row.faults, "\n"), text)
		}
	}
	after, err := api.History(t.Context(), client.HistoryQuery{Limit: 1})
	if err != nil || after.TotalExecutions != before.TotalExecutions {
		t.Errorf("%d executions were accepted, %v", after.TotalExecutions-before.TotalExecutions, err)
	}
}

// faultsIn returns the faults of an answer as "loc: type", none if it has no such thing.
func faultsIn(text string) (out []string) {
	var faults wire.Faults
	_ = json.Unmarshal([]byte(text), &faults) // The caller compares what is there.
	for _, f := range faults.Detail {
		loc := make([]string, len(f.Loc))
		for i, part := range f.Loc {
			loc[i] = fmt.Sprint(part)
		}
		out = append(out, strings.Join(loc, ".")+": "+f.Type)
	}
	return out
}

// badContainers are bodies of images, Compose files and services of an image.
func badContainers() map[string]badStart {
	rows := map[string]badStart{}
	image := func(name, fields string, faults ...string) {
		rows["image: "+name] = badStart{"image", `{"docker_image_ref":"probe"` + fields + `}`, faults}
	}
	rows["image: none"] = badStart{"image", `{}`, []string{"body.docker_image_ref: missing"}}
	for name, ref := range map[string]string{"spaces": "a b", "no name": "UPPER/Case", "a node's image": "berth.pulled/team/x:1"} {
		rows["image: "+name] = badStart{"image", `{"docker_image_ref":"` + ref + `"}`, []string{"body.docker_image_ref: value_error"}}
	}
	image("command is text", `,"docker_run_cmd":"print x"`, "body.docker_run_cmd: list_type")
	image("argument is a number", `,"docker_run_cmd":["print",7]`, "body.docker_run_cmd.1: string_type")
	image("variables are an object", `,"docker_run_env":{"A":"1"}`, "body.docker_run_env: string_type")
	image("lines without a variable", `,"docker_run_env":"A=1\nB\n2C=3"`, "body.docker_run_env: value_error", "body.docker_run_env: value_error")
	image("user with a space", `,"docker_run_user":"ada lace"`, "body.docker_run_user: string_pattern_mismatch")
	image("user is a number", `,"docker_run_user":1000`, "body.docker_run_user: string_type")
	image("unknown credentials", `,"docker_registry_credential_type":"gcp"`, "body.docker_registry_credential_type: enum")
	image("basic without a password", `,"docker_registry_credential_type":"basic","docker_username":"ada"`, "body.docker_password: value_error")
	image("aws without a secret", `,"docker_registry_credential_type":"aws","aws_access_key_id":"A"`, "body.aws_secret_access_key: value_error")
	image("password without a type", `,"docker_username":"ada","docker_password":"x"`, "body.docker_registry_credential_type: value_error")
	image("bad region", `,"aws_region":"EU North"`, "body.aws_region: string_pattern_mismatch")
	image("no grace", `,"graceful_timeout":0`, "body.graceful_timeout: greater_than_equal")
	image("too much grace", `,"graceful_timeout":301`, "body.graceful_timeout: less_than_equal")
	image("grace is text", `,"graceful_timeout":"soon"`, "body.graceful_timeout: int_parsing")
	image("mount in the system", `,"s3_mount_path":"/usr"`, "body.s3_mount_path: value_error")
	image("mount of wrong type", `,"enable_s3_mount":7`, "body.enable_s3_mount: bool_type")
	image("preemptible", `,"preemptible":true`, "body.preemptible: value_error")
	image("several", `,"job_type":7,"timeout":601,"network":"all","docker_run_cmd":{}`,
		"body.network: enum", "body.docker_run_cmd: list_type", "body.job_type: string_type", "body.timeout: less_than_equal")

	compose := func(name, file, fields string, faults ...string) {
		text, _ := json.Marshal(file) // Text has no errors.
		rows["compose: "+name] = badStart{"compose", `{"compose_file_code":` + string(text) + fields + `}`, faults}
	}
	const file = "body.compose_file_code"
	rows["compose: none"] = badStart{"compose", `{}`, []string{file + ": missing"}}
	rows["compose: an object"] = badStart{"compose", `{"compose_file_code":{"services":{}}}`, []string{file + ": string_type"}}
	compose("too long", "#"+strings.Repeat("x", 256<<10), "", file+": string_too_long")
	web := func(line string) string { return "services:\n  web:\n    image: probe\n    " + line + "\n" }
	compose("published port", web("ports: ['80:80']"), "", file+".4.5: value_error")
	compose("port that is none", web("ports: [99999]"), "", file+".4.5: value_error")
	compose("directory of the machine", web("volumes: ['/:/host']"), "", file+".4.15: value_error")
	compose("unknown key", web("nonsense: 1"), "", file+".4.5: value_error")
	compose("two services", web("privileged: true")+"  db:\n    cap_add: [ALL]\n    image: probe\n    pid: host\n", "",
		file+".4.5: value_error", file+".6.5: value_error", file+".8.5: value_error")
	compose("GPUs without a type", web("gpus: all"), `,"execution_type":"cpu"`, file+": value_error")
	const plain = "services: {a: {image: probe}}"
	compose("no grace", plain, `,"graceful_timeout":0`, "body.graceful_timeout: greater_than_equal")
	compose("aws without a key", plain, `,"docker_registry_credential_type":"aws"`,
		"body.aws_access_key_id: value_error", "body.aws_secret_access_key: value_error")
	compose("preemptible", plain, `,"preemptible":true`, "body.preemptible: value_error")

	service := func(name, fields string, faults ...string) {
		rows["service: "+name] = badStart{"service", `{"docker_image_ref":"probe"` + fields + `}`, faults}
	}
	service("no port", `,"port":0`, "body.port: greater_than_equal")
	service("port too large", `,"port":65536`, "body.port: less_than_equal")
	service("port is text", `,"port":"http"`, "body.port: int_parsing")
	service("health path", `,"health_path":"health"`, "body.health_path: string_pattern_mismatch")
	service("image and code", `,"code":"1"`, "body.docker_image_ref: value_error")
	service("user with a space", `,"docker_run_user":"ada lace"`, "body.docker_run_user: string_pattern_mismatch")
	return rows
}

// programs are the start bodies of each kind that lack nothing, without their last brace.
func programs() map[string]string {
	return map[string]string{
		"streaming": `{"code":"1"`, "gpu_selection": `{"code":"1"`, "image": `{"docker_image_ref":"probe"`,
		"compose": `{"compose_file_code":"services: {a: {image: probe}}"`, "service": `{"docker_image_ref":"probe"`,
	}
}

// badCallbacks are bodies of each kind with URLs that no callback may have.
func badCallbacks() map[string]badStart {
	rows := map[string]badStart{}
	for kind, body := range programs() {
		for name, row := range map[string]struct{ url, fault string }{
			"http":        {"http://example.com/", "url_scheme"},
			"credentials": {"https://ada:secret@example.com/", "value_error"},
			"user":        {"https://ada@example.com/", "value_error"},
			"too long":    {"https://example.com/" + strings.Repeat("x", 5000-len("https://example.com/")), "string_too_long"},
			"no host":     {"https:///x", "url_parsing"},
		} {
			rows[kind+": "+name] = badStart{
				kind, body + `,"user_callback_urls":["https://example.com/","` + row.url + `"]}`,
				[]string{"body.user_callback_urls.1: " + row.fault},
			}
		}
	}
	return rows
}

// checkNoEngine starts containers on a cluster of which no node has an engine. The refusal
// says so, and so does the inventory.
func checkNoEngine(t *testing.T, c *nodetest.Cluster, account nodetest.Account) {
	url := c.Follower().URL()
	for kind, engine := range map[string]string{"image": "docker", "compose": "compose", "service": "docker"} {
		answer, text := mustAsk(t, http.DefaultClient, http.MethodPost, url+executionRoutes+kind+"/start", account.Key,
			strings.NewReader(programs()[kind]+"}"))
		var refused wire.Error
		err := json.Unmarshal([]byte(text), &refused)
		want := "no node has " + engine + ": an operator installs it, or enables it with docker.host"
		if err != nil || answer.StatusCode != http.StatusBadRequest || refused.Code != "no_engine" || !strings.Contains(refused.Detail, want) {
			t.Errorf("%s: %d %s", kind, answer.StatusCode, text)
		}
	}
	nodes, err := nodetest.MustClient(t, c.RootToken, url).Nodes(t.Context())
	if err != nil || len(nodes) != len(c.Nodes) {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	for _, n := range nodes {
		for _, offer := range n.Offers {
			if strings.HasPrefix(string(offer), "engine:") {
				t.Errorf("node %s offers %s", n.Name, offer)
			}
		}
	}
}

// checkEnginesGone has an image wait while all nodes lose their engines. The explanation says so
// of each node, and the next start is refused.
func checkEnginesGone(t *testing.T, c *nodetest.Cluster, account nodetest.Account) {
	had := []*nodetest.Node{c.Nodes[0], c.Nodes[1], c.Nodes[3]}
	drainNodes(t, c, true, had...)
	api := nodetest.MustClient(t, account.Key, c.Nodes[2].URL())
	id := mustSubmitImage(t, api, client.StartImage{Image: dockertest.Image, RunCommand: []string{"print", "never"}})
	for _, n := range had {
		n.Stop()
		n.Config.Docker.Host = config.DockerOff
		n.Start()
	}
	c.WaitReady()
	drainNodes(t, c, false, had...)
	var got wire.Explanation
	nodetest.Eventually(t, endWait, "the reason that no node has an engine", func() bool {
		var err error
		if got, err = nodetest.MustClient(t, account.Key, c.Follower().URL()).Explain(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		return got.Reason != nil && *got.Reason == "no_engine"
	})
	if got.Status != compute.StatusQueued || got.NodesFit != 0 || got.Nodes != 4 || len(got.Refused) != 1 || got.Refused["no_engine"] != 4 {
		t.Errorf("it is %v, fits %d of %d nodes, refused by %v", got.Status, got.NodesFit, got.Nodes, got.Refused)
	}
	checkNoEngine(t, c, account)
	if err := api.Abort(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	mustFinish(t, api, id)
}

// request is a method and a path.
type request struct{ method, path string }

// statusRoute returns how a kind answers the status of an execution.
func statusRoute(kind string, id compute.ExecutionID) request {
	if kind == "service" {
		return request{http.MethodGet, "/api/v2/external/services/" + id.String()}
	}
	return request{http.MethodGet, executionRoutes + kind + "/" + id.String() + "/status"}
}

// endRoute returns how a kind ends an execution.
func endRoute(kind string, id compute.ExecutionID) request {
	if kind == "service" {
		return request{http.MethodDelete, "/api/v2/external/services/" + id.String()}
	}
	return request{http.MethodPost, executionRoutes + kind + "/abort/" + id.String()}
}

// checkKinds starts one execution of each kind and ends it, by the routes of its kind. Those
// of other kinds do not know it.
func checkKinds(t *testing.T, c *nodetest.Cluster, account nodetest.Account) {
	url := c.Follower().URL()
	api := nodetest.MustClient(t, account.Key, url)
	ids := mustStartKinds(t, api)
	ask := func(r request) (int, string) {
		t.Helper()
		answer, text := mustAsk(t, http.DefaultClient, r.method, url+r.path, account.Key, nil)
		return answer.StatusCode, text
	}
	refused := func(r request, want int, named string) {
		t.Helper()
		if code, text := ask(r); code != want || !strings.Contains(text, `"`+named+`"`) {
			t.Errorf("%s %s: %d %s, want %d %s", r.method, r.path, code, text, want, named)
		}
	}
	is := func(r request, id compute.ExecutionID, statuses ...compute.Status) {
		t.Helper()
		code, text := ask(r)
		var got wire.ExecutionStatus
		if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK || got.ExecutionID != id || !slices.Contains(statuses, got.Status) {
			t.Errorf("%s %s: %d %s, want %v, %v", r.method, r.path, code, text, statuses, err)
		}
	}
	for kind, id := range ids {
		nodetest.Eventually(t, endWait, "the execution of kind "+kind+" to run", func() bool {
			e, err := api.Execution(t.Context(), id, 0)
			return err == nil && e.Status == compute.StatusRunning
		})
		for other := range ids {
			if other != kind {
				refused(statusRoute(other, id), http.StatusNotFound, "not_found")
				refused(endRoute(other, id), http.StatusNotFound, "not_found")
			}
		}
		if kind != "compose" {
			refused(request{http.MethodPost, executionRoutes + "compose/complete/" + id.String()}, http.StatusNotFound, "not_found")
		}
	}
	service := ids["service"].String() // It is ended by DELETE /services/{id} alone.
	refused(request{http.MethodGet, executionRoutes + "service/" + service + "/status"}, http.StatusNotFound, "not_found")
	refused(request{http.MethodPost, executionRoutes + "service/abort/" + service}, http.StatusNotFound, "not_found")
	for kind, id := range ids {
		is(statusRoute(kind, id), id, compute.StatusRunning)
		is(endRoute(kind, id), id, compute.StatusRunning, compute.StatusAborted)
	}
	for kind, id := range ids {
		ended := compute.StatusAborted
		if kind == "service" {
			ended = compute.StatusCancelled
		}
		if e := mustFinish(t, api, id); e.Status != ended {
			t.Errorf("the execution of kind %s is %v, errors %v", kind, e.Status, e.Errors)
		}
		is(statusRoute(kind, id), id, ended)
		refused(endRoute(kind, id), http.StatusConflict, "already_ended")
	}
}

// mustStartKinds starts an execution of each kind that goes on until it is ended.
func mustStartKinds(t *testing.T, api *client.Client) map[string]compute.ExecutionID {
	t.Helper()
	const code = "import time\ntime.sleep(300)"
	endless := []string{"term", "0"}
	started := map[string]compute.ExecutionID{
		"streaming": mustSubmit(t, api, client.Start{Code: code, Timeout: 300}),
		"image":     mustSubmitImage(t, api, client.StartImage{Image: dockertest.Image, RunCommand: endless}),
	}
	selection, err := api.SubmitSelection(t.Context(), client.StartSelection{Start: client.Start{Code: code, Timeout: 300, GPUTypes: []string{"t4"}}})
	if err != nil {
		t.Fatal(err)
	}
	compose, err := api.SubmitCompose(t.Context(), client.StartCompose{
		File: "services: {a: {image: " + dockertest.Image + ", command: [term, '0']}}",
	})
	if err != nil {
		t.Fatal(err)
	}
	service := client.StartService{Image: dockertest.Image, Port: 8000}
	service.Command = []string{"serve", "8000"}
	served, err := api.SubmitService(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	started["gpu_selection"], started["compose"], started["service"] = selection.ExecutionID, compose.ExecutionID, served.ExecutionID
	return started
}
