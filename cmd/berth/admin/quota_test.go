package admin

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
)

// grantedQuotas is an organization with a weight of its own, the cluster's
// limit of executions, and quotas of a key, of a tag and of hardware profiles.
const grantedQuotas = `{"org": "lab", "limits": [
  {"scope": "organization", "key_id": null, "tag": null, "max_concurrent": 100, "in_use": 3, "max_gpu_milli": 8000, "gpu_milli_in_use": 2500, "weight": 200, "inherited": ["max_concurrent"]},
  {"scope": "key", "key_id": "0198c0de-0000-7000-8000-00000000000a", "tag": null, "max_concurrent": 4, "in_use": 1, "max_gpu_milli": 0, "gpu_milli_in_use": 500, "weight": null, "inherited": []},
  {"scope": "tag", "key_id": null, "tag": "sweep", "max_concurrent": 0, "in_use": 2, "max_gpu_milli": 1500, "gpu_milli_in_use": 1000, "weight": null, "inherited": []},
  {"scope": "hardware_profile", "hardware_profile": "gpu.h100", "allowed": false, "in_use": 1, "gpu_milli_in_use": 1000, "inherited": []},
  {"scope": "hardware_profile", "hardware_profile": "gpu.t4.2x", "allowed": true, "max_concurrent": 3, "in_use": 0, "inherited": []}
], "fair_share": {"weight": 200, "used_credits": 1, "held_credits_per_hour": 2}}`

func TestQuotaList(t *testing.T) {
	var asked string
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/admin/quotas": func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.Query().Get("org")
			clitest.Answer(grantedQuotas)(w, r)
		},
	})
	r := execute(t, "", "admin", "quota", "list", "--org", "lab")
	clitest.CheckGolden(t, "quotas", r.Out)
	if r.Code != 0 || asked != "lab" {
		t.Errorf("got %+v of %q", r, asked)
	}
	r = execute(t, "", "admin", "quota", "list", "--org", "lab", "--json")
	var known map[string]any
	if err := json.Unmarshal([]byte(r.Out), &known); err != nil || len(known["limits"].([]any)) != 5 {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestQuotaSet checks that a command keeps the limits that it does not name,
// and does not copy the cluster's limits into the organization's own.
func TestQuotaSet(t *testing.T) {
	const key = "0198C0DE-0000-7000-8000-00000000000A"
	tests := []struct {
		args string
		want map[string]any // The request without zero and empty fields.
	}{
		{"set --org lab --weight 300", map[string]any{"org": "lab", "weight": 300.0, "max_gpu_milli": 8000.0}},
		{"set --org lab --max-gpus 16.1", map[string]any{"org": "lab", "weight": 200.0, "max_gpu_milli": 16100.0}},
		{"set --org lab --max-gpus 0.0070", map[string]any{"org": "lab", "weight": 200.0, "max_gpu_milli": 7.0}},
		{"set --org lab --max-gpus 0", map[string]any{"org": "lab", "weight": 200.0}},
		{
			"set --org lab --max-concurrent 7 --max-gpus 2.5",
			map[string]any{"org": "lab", "weight": 200.0, "max_concurrent": 7.0, "max_gpu_milli": 2500.0},
		},
		{
			"set --org lab --tag sweep --max-concurrent 2",
			map[string]any{"org": "lab", "tag": "sweep", "max_concurrent": 2.0, "max_gpu_milli": 1500.0},
		},
		{"set --org lab --tag new --max-concurrent 2", map[string]any{"org": "lab", "tag": "new", "max_concurrent": 2.0}},
		{
			"set --org lab --key " + key + " --max-gpus 1",
			map[string]any{"org": "lab", "key_id": key, "max_concurrent": 4.0, "max_gpu_milli": 1000.0},
		},
		{
			"set --org lab --profile H100 --deny",
			map[string]any{"org": "lab", "hardware_profile": "gpu.h100", "allowed": false},
		},
		{
			"set --org lab --profile gpu.h100 --deny=false --max-gpus 1",
			map[string]any{"org": "lab", "hardware_profile": "gpu.h100", "max_gpu_milli": 1000.0},
		},
		{
			"set --org lab --profile t4.2x --max-gpus 4",
			map[string]any{"org": "lab", "hardware_profile": "gpu.t4.2x", "max_concurrent": 3.0, "max_gpu_milli": 4000.0},
		},
		{"remove --org lab --profile h100", map[string]any{"org": "lab", "hardware_profile": "gpu.h100"}},
		{"remove --org lab", map[string]any{"org": "lab"}},
		{"remove --org lab --tag sweep", map[string]any{"org": "lab", "tag": "sweep"}},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			var sent map[string]any
			clitest.MustCluster(t, map[string]http.HandlerFunc{
				"GET " + clitest.APIRoot + "/admin/quotas":  clitest.Answer(grantedQuotas),
				"POST " + clitest.APIRoot + "/admin/quotas": clitest.RecordSent(t, &sent, grantedQuotas),
			})
			r := execute(t, "", append([]string{"admin", "quota"}, strings.Fields(tt.args)...)...)
			maps.DeleteFunc(sent, func(_ string, v any) bool { return v == 0.0 || v == "" || v == nil })
			if r.Code != 0 || !maps.Equal(sent, tt.want) || !strings.Contains(r.Out, "sweep") {
				t.Errorf("sent %v, want %v; got %+v", sent, tt.want, r)
			}
		})
	}
}

func TestQuotaRefused(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{"GET " + clitest.APIRoot + "/admin/quotas": clitest.Answer(grantedQuotas)})
	tests := []struct {
		args string
		code int
		want string
	}{
		{"list", cli.ExitUsage, "--org is needed"},
		{"set --org lab", cli.ExitUsage, "nothing to set"},
		{"set --org lab --max-gpus -1", cli.ExitUsage, "not a number of GPUs"},
		{"set --org lab --max-gpus 0.0001", cli.ExitUsage, "not a number of GPUs"},
		{"set --org lab --max-gpus .", cli.ExitUsage, "not a number of GPUs"},
		{"set --org lab --max-gpus 1.-5", cli.ExitUsage, "not a number of GPUs"},
		{"set --org lab --max-gpus 1000000.001", cli.ExitUsage, "not a number of GPUs"},
		{"set --org lab --max-gpus NaN", cli.ExitUsage, "not a number of GPUs"},
		{"set --org lab --key x --max-gpus 1", cli.ExitUsage, "not the id of an API key"},
		{"set --org lab --key a --tag b --max-gpus 1", cli.ExitUsage, "exclude each other"},
		{"set --org lab --tag b --weight 2", cli.ExitUsage, "is an organization's"},
		{"set --org lab --deny", cli.ExitUsage, "name --profile"},
		{"set --org lab --profile x. --deny", cli.ExitUsage, "--profile"},
		{"set --org lab --profile t4 --tag b --deny", cli.ExitUsage, "exclude each other"},
		{"remove --org lab --profile t4", cli.ExitFailed, `the hardware profile gpu.t4 has no quota of its own`},
		{"set --org lab --tag= --max-gpus 1", cli.ExitUsage, "--tag is empty"}, // Not the organization's quota.
		{"remove --org lab --key=", cli.ExitUsage, "--key is empty"},
		{"remove --org lab --profile=", cli.ExitUsage, "--profile is empty"},
		{"remove --org lab --tag none", cli.ExitFailed, `the tag "none" has no quota of its own`},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			r := execute(t, "", append([]string{"admin", "quota"}, strings.Fields(tt.args)...)...)
			if r.Code != tt.code || !strings.Contains(r.Errors, tt.want) {
				t.Errorf("got %+v, want exit code %d and %q", r, tt.code, tt.want)
			}
		})
	}
}
