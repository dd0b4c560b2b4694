package dev_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/cmd/berth/dev"
)

// TestMain acts as a fake berth program when the cluster under test starts it.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 3 && os.Args[1] == "node" && os.Args[2] == "--config":
		os.Exit(fakeNode(os.Args[3]))
	case len(os.Args) == 5 && os.Args[1] == "dev" && os.Args[2] == "guard":
		if err := dev.Guard(asked(), os.Stdin, os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == "supervise":
		<-asked().Done()
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == "runcluster":
		os.Exit(runCluster(os.Args[2]))
	}
	// The race detector makes each process sleep before it ends.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// fakeNode serves a fake API until SIGTERM. It reads its cluster from dev.json.
// The leader is the node that the file "leader" names.
func fakeNode(config string) int {
	text, err := os.ReadFile(config)
	if err != nil {
		return 1
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(config), "broken")); err == nil {
		fmt.Fprintln(os.Stderr, "this node is broken")
		return 1
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(config), "data", "removed")); err == nil {
		return dev.ExitRemoved
	}
	var addr, data string
	for line := range strings.SplitSeq(string(text), "\n") {
		if value, found := strings.CutPrefix(line, "  addr: "); found && addr == "" {
			addr = value
		}
		if value, found := strings.CutPrefix(line, "data_dir: "); found {
			data = strings.Trim(value, `"`)
		}
	}
	dir := filepath.Dir(filepath.Dir(config))
	if os.MkdirAll(data, 0o700) != nil ||
		os.WriteFile(filepath.Join(data, "root_token"), []byte("brt_1"), 0o600) != nil ||
		os.WriteFile(filepath.Join(data, "node.json"), []byte(`{"cluster_id":"0198c0de-0000-7000-8000-0000000000ff"}`), 0o600) != nil {
		return 1
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go http.Serve(l, fakeAPI(dir)) //nolint:errcheck,gosec // Ends with the process.
	<-asked().Done()
	return 0
}

// asked returns a context that ends at SIGTERM.
func asked() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return ctx
}

// runCluster runs the cluster of dir until SIGTERM, as berth dev does.
func runCluster(dir string) int {
	cluster, err := dev.Open(asked(), dev.Config{Dir: dir, GPUs: "n1=t4", Binary: os.Args[0], Restart: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := cluster.Run(asked()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// fakeAPI answers the requests of package dev.
func fakeAPI(dir string) http.Handler {
	const root = "/api/v2/external"
	mux := http.NewServeMux()
	fixed := map[string]string{
		"GET /readyz":                         `{}`,
		"POST " + root + "/admin/join-tokens": `{"token":"bjt_1"}`,
		"PATCH " + root + "/admin/orgs/{org}": `{"slug":"dev","trusted":true}`,
		"POST " + root + "/auth/login":        `{"access_token":"jwt"}`,
		"POST " + root + "/orgs/dev/api-keys": `{"plaintext_key":"lk_1"}`,
	}
	for pattern, body := range fixed {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
	}
	mux.HandleFunc("POST "+root+"/admin/users", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict) // As after an interrupted first start.
		fmt.Fprint(w, `{"detail":"there is such a user","code":"conflict"}`)
	})
	mux.HandleFunc("GET "+root+"/admin/nodes", func(w http.ResponseWriter, r *http.Request) {
		rotated, err := os.ReadFile(filepath.Join(dir, "rotated"))
		if err == nil && r.Header.Get("Authorization") != "Bearer "+string(rotated) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"detail":"no","code":"unauthenticated"}`)
			return
		}
		fmt.Fprint(w, fakeNodes(dir, `{"id":%q,"name":%q,"state":"up","api":"http://%s","gpus":[%s]}`, "nodes"))
	})
	mux.HandleFunc("GET "+root+"/admin/raft/peers", func(w http.ResponseWriter, _ *http.Request) {
		leader, err := os.ReadFile(filepath.Join(dir, "leader"))
		if err != nil {
			leader = []byte("n1")
		}
		fmt.Fprint(w, fakePeers(dir, string(leader)))
	})
	return mux
}

type fakePlan struct{ Nodes []fakePlanned }

type fakePlanned struct {
	Name, API, GPUs string
	Removed         bool
}

func readPlan(dir string) fakePlan {
	var p fakePlan
	data, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	p.Nodes = slices.DeleteFunc(p.Nodes, func(n fakePlanned) bool { return n.Removed })
	return p
}

func fakeID(name string) string { return "0198c0de-0000-4000-8000-00000000000" + name[1:] }

func fakeNodes(dir, format, list string) string {
	var nodes []string
	for _, n := range readPlan(dir).Nodes {
		gpus := ""
		if n.GPUs != "" {
			gpus = `{"id":"SIM-1","type":"t4","vram_mib":16384,"simulated":true}`
		}
		nodes = append(nodes, fmt.Sprintf(format, fakeID(n.Name), n.Name, n.API, gpus))
	}
	return `{"` + list + `":[` + strings.Join(nodes, ",") + `]}`
}

func fakePeers(dir, leader string) string {
	var b bytes.Buffer
	for _, n := range readPlan(dir).Nodes {
		fmt.Fprintf(&b, `,{"id":%q,"voter":true,"leader":%t}`, fakeID(n.Name), n.Name == strings.TrimSpace(leader))
	}
	return `{"peers":[` + strings.TrimPrefix(b.String(), ",") + `]}`
}
