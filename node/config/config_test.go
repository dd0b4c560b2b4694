package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/node/config"
)

func TestLoadPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "berth.yaml")
	text := "name: from-file\nvoters: 5\napi:\n  addr: 127.0.0.1:1\nlimits: {timeout_max: 168h}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"BERTH_NAME=from-env", "BERTH_API_ADDR=127.0.0.1:2", "BERTH_ADDR=http://client", "BERTH_GPUS_SIMULATED=h100:2,t4:1", "BERTH_GPUS_SOURCE=simulated"}
	cfg, err := config.Load(file, env, map[string]string{"api.addr": "127.0.0.1:3"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.API.Addr != "127.0.0.1:3" || cfg.Name != "from-env" || cfg.Voters != 5 {
		t.Errorf("got api.addr %q, name %q, voters %d; want the flag's, the variable's, the file's", cfg.API.Addr, cfg.Name, cfg.Voters)
	}
	if cfg.Limits.TimeoutMax != 168*time.Hour || len(cfg.GPUs.Simulated) != 2 || cfg.Raft.Profile != "auto" {
		t.Errorf("got timeout_max %v, simulated %q, profile %q", cfg.Limits.TimeoutMax, cfg.GPUs.Simulated, cfg.Raft.Profile)
	}
}

// TestS3Addr holds that S3 has a port of its own at the address of the API unless a setting says
// otherwise.
func TestS3Addr(t *testing.T) {
	for _, test := range []struct{ api, s3, want string }{
		{"127.0.0.1:6470", config.Default().S3.Addr, "127.0.0.1:6473"},
		{":6470", config.S3Auto, ":6473"},
		{"[::1]:80", config.S3Auto, "[::1]:6473"},
		{"0.0.0.0:6473", config.S3Auto, ""},
		{"0.0.0.0:6470", "10.0.0.1:9000", "10.0.0.1:9000"},
		{"0.0.0.0:6470", config.S3Off, ""},
		{"0.0.0.0:6470", "", ""},
	} {
		cfg := config.Config{API: config.API{Addr: test.api}, S3: config.S3{Addr: test.s3}}
		if got := cfg.S3Addr(); got != test.want {
			t.Errorf("the API at %s and s3.addr %q: %q, want %q", test.api, test.s3, got, test.want)
		}
	}
}

func TestCheckNamesEveryFault(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // One per fault, each a part of it.
	}{
		{"good", "name: n1\ngpus:\n  source: none\n", nil},
		{"empty", "", nil},
		{
			"unknown key and section", "nmae: n1\napi:\n  addres: x\nwat:\n  a: 1\n",
			[]string{"line 1: nmae: is not a setting", "line 3: api.addres: is not a setting", "line 4: wat: is not a setting"},
		},
		{
			"wrong types", "voters: many\nlimits:\n  timeout_max: soon\n",
			[]string{"line 1: voters: many is not a whole number", "line 3: limits.timeout_max: soon is not a duration"},
		},
		{
			"broken rules", "voters: 2\nraft:\n  profile: fast\napi:\n  addr: nowhere\n",
			[]string{"line 1: voters: must be 1, 3, 5, or 0 for 3, and 5 from seven servers on", `line 3: raft.profile: "fast" is not one of auto, default, lan`, `line 5: api.addr: "nowhere" is not host:port`},
		},
		{"gpus", "gpus:\n  source: simulated\n  simulated: [h100:2, nonsense:x]\n", []string{"line 3: gpus.simulated:"}},
		{"mounts", "executor:\n  mounts:\n    - {name: Data, path: rel}\n", []string{`line 2: executor.mounts: mount "Data" needs`}},
		{"object stores", "storage:\n  objects: s3://bucket?region=eu-west-1&prefix=berth/\n  objects_from: azblob://container\n", nil},
		{
			"bad object stores", "storage:\n  objects: ftp://bucket\n  objects_from: s3://key:secret@bucket\n",
			[]string{"line 2: storage.objects: must be a URL such as s3://", "line 3: storage.objects_from: must be a URL such as s3://"},
		},
		{"an object store without a bucket", "storage:\n  objects: \"gs://\"\n", []string{"line 2: storage.objects: must be"}},
		{"an audit file", "data_dir: /var/lib/berth\nlog:\n  audit_file: /var/lib/berth-audit/a.jsonl\n", nil},
		{"a relative audit file", "log:\n  audit_file: a.jsonl\n", []string{"line 2: log.audit_file: must be an absolute path outside of data_dir"}},
		{"an audit file among the data", "data_dir: /d\nlog:\n  audit_file: /d/audit.json\n", []string{"line 3: log.audit_file: must be"}},
		{"plain HTTP on loopback", "api:\n  addr: 127.0.0.1:6470\n", nil},
		{"plain HTTP beyond loopback", "api:\n  addr: 0.0.0.0:6470\n", []string{"api.insecure: is needed to serve plain HTTP beyond this machine"}},
		{"plain HTTP on every address", "api:\n  addr: :6470\n", []string{"api.insecure: is needed"}},
		{"plain HTTP on purpose", "api:\n  addr: 0.0.0.0:6470\n  insecure: true\n", nil},
		{"metrics on loopback", "metrics:\n  addr: 127.0.0.1:6474\n", nil},
		{"metrics beyond loopback", "metrics:\n  addr: 0.0.0.0:6474\n", []string{"metrics.insecure: is needed to serve plain HTTP", "metrics.token_file: is needed"}},
		{"metrics beyond loopback, asked for", "metrics:\n  addr: 0.0.0.0:6474\n  insecure: true\n  token_file: /t\n", nil},
		{"TLS beyond loopback", "api:\n  addr: 0.0.0.0:6470\n  tls: {cert: a, key: b}\n", nil},
		{"no S3 port", "s3:\n  addr: off\n", nil},
		{"S3 beyond loopback", "s3:\n  addr: 0.0.0.0:6473\n", []string{"api.insecure: is needed"}},
		{"a bad S3 port", "s3:\n  addr: \"6473\"\n", []string{"line 2: s3.addr: must be host:port, auto or off"}},
		{"not yaml", "name: [\n", []string{""}},
		{"duplicate key", "name: a\nname: b\n", []string{"already defined"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "berth.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			faults, err := config.Check(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(faults) != len(test.want) {
				t.Fatalf("got %d faults %v, want %d", len(faults), faults, len(test.want))
			}
			for i, want := range test.want {
				if !strings.Contains(faults[i].Error(), want) {
					t.Errorf("fault %d: got %q, want %q in it", i, faults[i].Error(), want)
				}
			}
		})
	}
}

func TestKeysHaveHelp(t *testing.T) {
	for _, key := range config.Keys() {
		if key.Usage == "" || !strings.HasPrefix(key.Env(), "BERTH_") {
			t.Errorf("%+v has no help or variable", key)
		}
	}
}
