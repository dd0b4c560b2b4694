// Package berth_test holds what is true of the tree as a whole: which package
// may import which, and which package owns which library.
package berth_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the path of this module.
const module = "berth"

// A rule says what the packages at and below dir may import of ours, beside
// what is below dir itself. The longest dir that matches a package counts;
// that of node does not hold for its children, each has its own.
type rule struct {
	dir string
	may []string // Directories; what is below one counts only where it ends in "/...".
	why string
}

// rules is the picture of ARCHITECTURE.md as a table: imports go down only.
var rules = []rule{
	{"compute", nil, "the vocabulary stands below everything and imports nothing of ours"},
	{"boottime", []string{"fault"}, "one clock for leases, read by nodes and by supervisors, which load little"},
	{"fault", nil, "failpoints stand everywhere and are nothing without their build tag"},
	{"timerslack", nil, "it asks the kernel alone, and supervisors load it first"},
	{"loop", nil, "waiting needs nothing of ours"},
	{"attempt", []string{"compute"}, "the protocol of attempts is pure, so that the simulation executes what nodes, leader and state execute"},
	{"fsm", []string{"attempt", "compute", "compute/requirements", "fault"}, "the state machine is a function of commands: it knows no network, no device and no policy"},
	{"fsm/archive", []string{"compute", "fsm/command", "fsm/partial", "fsm/store"}, "archives are written and read alike wherever their executions come from"},
	{"fsm/charge", []string{"compute"}, "what an execution costs follows from its record"},
	{"fsm/command", []string{"compute", "fsm/format", "fsm/store"}, "commands are data: what is proposed and how it travels; what it changes is decided in fsm"},
	{"fsm/format", nil, "names of formats say what is added, not where"},
	{"fsm/ledger", []string{"compute", "fsm/store"}, "ledgers are stored and chained; what is posted to them is decided in fsm"},
	{"fsm/partial", []string{"compute", "fsm/store"}, "records are decoded without the tables that have them"},
	{"fsm/snapshot", []string{"compute"}, "the format of snapshots and backups knows no record"},
	{"fsm/store", nil, "tables and packing know no record and no command"},
	{"scheduler", []string{"compute", "compute/capacity", "fault"}, "it declares the View and the Committer that it needs; node adapts fsm to them"},
	{"gpu", []string{"compute", "loop"}, "devices are reported in compute types; node hands them on"},
	{"cluster", []string{"boottime", "compute", "fault", "loop"}, "it moves bytes and knows no command; node encodes and decodes them"},
	{"cluster/datadir", []string{"cluster/file", "compute"}, "the record of a node stands below the parts of cluster that read it"},
	{"cluster/raftconf", []string{"compute"}, "server ids and quorums are arithmetic on Raft's configuration"},
	{"cluster/timing", nil, "what disks and networks take is measured before the cluster opens"},
	{"cluster/liblog", nil, "it turns library logs into records and knows nothing of the cluster"},
	{"cluster/gossip", []string{"cluster/datadir", "cluster/file", "cluster/liblog", "cluster/rpc", "compute", "loop"}, "gossip gives hints; cluster imports it, never the reverse"},
	{"cluster/transport", []string{"cluster/rpc", "compute", "fault"}, "connections are made and checked without knowing who may connect"},
	{"cluster/clock", []string{"boottime", "compute"}, "the cluster's time needs clocks, not the cluster"},
	{"cluster/replica", []string{"cluster/datadir", "cluster/disk", "cluster/file", "cluster/liblog", "cluster/raftconf", "cluster/rpc", "compute", "loop"}, "a replica is opened, checked and recovered without the cluster around it"},
	{"cluster/membership", []string{"cluster/raftconf", "compute"}, "the plan of who votes is a pure function"},
	{"cluster/disk", []string{"cluster/file", "fault"}, "the log store knows no cluster"},
	{"cluster/file", nil, "files that survive a power cut know no content"},
	{"cluster/rpc", []string{"compute"}, "calls are frames between identities"},
	{"cluster/pki", []string{"cluster/file", "compute"}, "certificates name nodes and know no cluster around them"},

	{"api", []string{"compute"}, "one table of routes and its documents: handlers are in the packages of their groups"},
	{"api/handler", []string{"api/edge", "api/edge/answer", "api/wire", "compute", "compute/capacity", "fsm", "fsm/command", "loop"}, "handlers build commands and read views: the one sideways edge; the rest comes through interfaces"},
	{"api/account", []string{"api/auth", "api/edge", "api/edge/answer", "api/handler", "api/wire", "compute", "fsm", "fsm/command"}, "groups of endpoints share package handler and do not know one another"},
	{"api/admin", []string{"api/edge", "api/edge/answer", "api/handler", "api/wire", "compute", "fsm", "fsm/command"}, "groups of endpoints share package handler and do not know one another"},
	{"api/billing", []string{"api/edge", "api/edge/answer", "api/handler", "api/statement", "api/wire", "compute", "fsm", "fsm/command"}, "groups of endpoints share package handler and do not know one another"},
	{"api/storage", []string{"api/edge", "api/edge/answer", "api/handler", "api/wire", "compute", "fsm", "fsm/command"}, "groups of endpoints share package handler and do not know one another"},
	{"api/submission", []string{"api/edge", "api/handler", "api/wire", "composefile", "compute", "fsm/command"}, "starts of all kinds become commands without knowing their routes"},
	{"api/execution", []string{"api/edge", "api/edge/answer", "api/handler", "api/submission", "api/wire", "composefile", "compute", "fsm", "fsm/command", "loop"}, "executions know nothing of the deployments that build on them"},
	{"api/deployment", []string{"api/edge", "api/execution", "api/handler", "api/submission", "api/wire", "compute", "fsm", "fsm/command"}, "a service is an execution, and a deployment is a service"},
	{"api/edge", []string{"api/auth", "api/wire", "compute", "fault", "fsm", "fsm/archive", "fsm/command", "loop"}, "requests come and go without knowing what the endpoints do"},
	{"api/edge/answer", []string{"api/edge/connection", "compute"}, "answers are made without knowing the requests for them"},
	{"api/edge/connection", []string{"api/auth", "api/edge/limit"}, "connections are watched and ended whatever is asked through them"},
	{"api/edge/limit", []string{"compute", "fsm/command"}, "what is bounded is counted without knowing requests"},
	{"api/edge/openai", []string{"api/edge/limit", "compute"}, "the protocol is read without knowing callers and replicas"},
	{"api/wire", []string{"compute", "compute/requirements"}, "JSON bodies are shared with clients, which know no state machine"},
	{"api/auth", []string{"compute", "loop"}, "keys and tokens are checked without knowing where they are kept"},
	{"api/statement", []string{"compute"}, "a statement says what ledger lines say, and nothing else"},
	{"api/client", []string{"api/wire", "compute", "sdk/go"}, "a client knows the wire and nothing of the server"},
	{"sdk/go", nil, "programs import it as a module of its own, with the standard library alone"},

	{"node", []string{"api/...", "boottime", "cluster/...", "compute", "fault", "fsm", "fsm/command", "fsm/format", "gpu", "loop", "scheduler/...", "timerslack"}, "node puts a peer together from the parts below it"},
	{"composefile", nil, "what a Compose file may say is a pure function of its text"},
	{"node/executor/docker/dockertest", []string{"node/executor/docker"}, "images for tests are made on the engine that nodes use"},
	{"node/executor", []string{"attempt", "boottime", "cluster/file", "composefile", "compute", "compute/address", "fault", "loop", "node/logs", "timerslack"}, "the children of node know nothing of commands; an attempt writes its output through node/logs"},
	{"node/executor/live", []string{"boottime", "compute", "loop", "node/executor/cgroup", "node/executor/journal", "node/executor/supervise", "node/logs"}, "the attempts of a node know nothing of how they are prepared or followed"},
	{"node/executor/inputs", []string{"composefile", "compute", "node/executor/live", "node/executor/sandbox"}, "inputs are read without knowing what else an attempt gets"},
	{"node/config", []string{"compute", "gpu", "node/inference/engine"}, "the configuration is read without opening what it configures"},
	{"node/repair", []string{"cluster/file", "cluster/raftconf", "cluster/replica", "compute", "fsm", "fsm/command", "fsm/format", "fsm/snapshot", "node/storage"}, "a stopped server is repaired without the parts of a running one"},
	{"node/worker", []string{"api/edge", "attempt", "boottime", "cluster", "cluster/rpc", "compute", "fsm", "fsm/command", "loop", "node/executor", "node/logs"}, "both sides of the protocol of workers stand in one place"},
	{"node/archives", []string{"compute", "fault", "fsm", "fsm/archive", "fsm/command", "fsm/format", "loop", "node/storage"}, "archives are made and read without the cluster around them"},
	{"node/explain", []string{"cluster/replica", "compute", "fsm", "fsm/command", "loop", "scheduler", "scheduler/forecast"}, "questions about scheduling are answered from a state and its log"},
	{"node/leader", []string{"attempt", "cluster", "cluster/disk", "cluster/file", "cluster/raftconf", "compute", "fault", "fsm", "fsm/command", "fsm/format", "fsm/snapshot", "loop", "node/archives", "node/progress", "node/secrets", "scheduler", "scheduler/forecast", "scheduler/selection"}, "the leader's duties are commands about what the state and the cluster show"},
	{"node/progress", []string{"cluster", "cluster/rpc", "compute", "fsm", "node/logs"}, "progress is read from the output of a node and asked for by the leader"},
	{"node/replication", []string{"cluster", "cluster/replica", "cluster/rpc", "compute", "fsm", "fsm/archive", "loop", "node/archives", "node/storage", "node/trees"}, "which blobs a server needs follows from the state alone"},
	{"node/audit", []string{"api/wire", "cluster/file", "compute", "fsm", "loop"}, "trails are exported from a state, in the words of the API"},
	{"node/callback", []string{"compute", "compute/address", "fsm", "fsm/command", "fsm/format", "loop"}, "what is sent follows from the state alone"},
	{"node/inference/autoscale", []string{"compute"}, "how many replicas there should be follows from counts and targets"},
	{"node/inference/fair", nil, "turns are taken without knowing what for"},
	{"node/inference/engine", []string{"compute"}, "engines are described without what starts them"},
	{"node/inference/enginemetrics", []string{"loop"}, "what an engine answers is read without what starts it"},
	{"node/inference/meter", []string{"compute", "fsm", "fsm/command", "loop"}, "usage is settled with the state, by whoever proposes"},
	{"node/inference/weights", []string{"cluster/file", "compute", "loop"}, "models are fetched without knowing what loads them"},
	{"node/router", []string{"compute", "fsm", "node/inference/autoscale", "node/inference/fair"}, "which replica answers follows from the state, and when from who else asks"},
	{"node/identity", []string{"compute"}, "who a person is at the identity provider is found without the accounts here"},
	{"node/payment", []string{"compute"}, "purchases are made and read without the state that records them"},
	{"node/series", []string{"compute", "loop"}, "the children of node do not know each other"},
	{"node/logs/notify", nil, "supervisors import node/logs and must start quickly: what watches files stands beside it"},
	{"node/logs/copies", []string{"compute", "fault", "loop", "node/logs"}, "copies are pushed and kept without knowing which nodes there are"},
	{"node/logs/archive", []string{"compute", "fault", "fsm", "fsm/command", "loop", "node/objects"}, "output is archived as objects are stored, without knowing which node has it"},
	{"node/logs", []string{"compute", "loop"}, "the children of node do not know each other"},
	{"node/storage", []string{"compute", "fault"}, "the children of node do not know each other"},
	{"node/trees", []string{"compute"}, "manifests are read without knowing where blobs are"},
	{"node/gateway", []string{"api/auth", "compute", "fsm", "fsm/command", "loop", "node/objects"}, "S3 is another way to the same objects: it reads the state and proposes commands as the REST endpoints do"},
	{"node/objects", []string{"compute", "fsm", "fsm/command"}, "content is stored through interfaces; what it becomes is a command"},
	{"node/mirror", []string{"compute", "loop"}, "blobs are copied without knowing what refers to them, or where the copies go"},
	{"node/secrets", []string{"compute"}, "the children of node do not know each other"},
	{"node/statetest", []string{"compute", "fsm", "fsm/command"}, "a state for tests needs no node"},
	{"node/nodetest", []string{"api/client", "api/wire", "compute", "node", "node/config"}, "tests see a node from outside, as its users do"},

	{"bench", []string{"api/client", "api/wire", "compute", "fsm", "fsm/command", "fsm/format", "loop", "scheduler", "scheduler/forecast"}, "it drives nodes through the API, and simulates with the real Pack and state machine"},
	{"bench/faults", []string{"api/client", "api/wire", "attempt", "bench/quantile", "boottime", "compute", "fault", "loop", "node/executor/prepare"}, "it sees nodes as their users do, and removes from the machine what killed ones leave"},
	{"bench/schedule", []string{"bench/quantile", "bench/usage", "cluster", "compute", "fsm", "fsm/command", "loop", "scheduler"}, "three real peers without executors: thousands of simulated nodes are records, not processes"},
	{"bench/dst", []string{"attempt", "boottime", "compute", "fsm", "fsm/command", "fsm/format", "node/executor/journal", "scheduler"}, "one process that is a whole cluster under a virtual clock, with the journals and leases of attempts on simulated disks and clocks"},
	{"cmd/berth", []string{"api/client", "api/wire", "compute", "examples", "fault", "node", "node/config", "node/executor/docker", "node/executor/early", "node/executor/mount"}, "a main of a few lines over node and the client"},
	{"cmd/berth-supervisor", []string{"node/executor/early"}, "supervisors start quickly because little is in their program"},
	{"cmd/berth/admin", []string{"api/client", "api/wire", "cmd/berth/cli", "compute", "loop", "node/repair"}, "operators call the API or repair a stopped server; no command executes a node"},
	{"cmd/berth/account", []string{"api/client", "api/wire", "cmd/berth/cli", "cmd/berth/contexts", "compute", "loop"}, "people and their credentials, as their cluster knows them and as this machine does"},
	{"cmd/berth/execution", []string{"api/client", "api/wire", "cmd/berth/cli", "cmd/berth/inspect", "cmd/berth/source", "compute", "loop"}, "what starts executions follows them as other commands do"},
	{"cmd/berth/inspect", []string{"api/client", "api/wire", "cmd/berth/cli", "compute"}, "what looks at executions starts none"},
	{"cmd/berth/storage", []string{"api/client", "api/wire", "cmd/berth/cli", "compute"}, "files move between this machine and the API"},
	{"cmd/berth/benchcmd", []string{"bench/...", "cmd/berth/cli", "cmd/berth/dev", "fault"}, "benchmarks are flags and tables around a package of bench"},
	{"cmd/berth/source", []string{"api/client", "api/wire", "compute"}, "a directory is read and sent without knowing flags"},
	{"cmd/berth/cli", []string{"api/client", "cmd/berth/contexts", "cmd/berth/devstate", "compute"}, "commands share a few lines about flags and printing, and know the cluster through its client"},
	{"cmd/berth/clitest", []string{"cmd/berth/cli"}, "tests execute command lines as users do"},
	{"cmd/berth/contexts", nil, "the file of contexts knows no command and makes no request"},
	{"cmd/berth/devstate", []string{"compute"}, "clients find a cluster of berth dev without what starts it"},
	{"cmd/berth/dev", []string{"api/client", "api/wire", "cmd/berth/devstate", "compute", "gpu", "loop", "node/config", "node/executor/prepare"}, "it starts node processes, reads the same GPU lists and settings as they do, and removes what killed ones left"},
	{"testsize", nil, "tests of every package choose their size by it"},
	{"examples", nil, "programs for executions, not for nodes"},
	{"deploy", nil, "files for machines, not for nodes"},
}

// testsOnly are packages that only tests may import.
var testsOnly = []string{
	"cmd/berth/clitest", "fsm/storetest", "node/executor/docker/dockertest", "node/executor/packages/wheeltest", "node/nodetest",
	"node/objects/remote/storetest", "node/statetest", "testsize",
}

// A library is a module or package from outside and who may import it.
type library struct {
	path   string
	owners []string // Directories with everything below them; none for nobody.
	why    string
}

// libraries gives every library its owners. The longest path that matches an
// import counts; an import that none matches fails, so that a new library
// comes with its line here and in docs/dependencies.md.
var libraries = []library{
	{"github.com/hashicorp/raft", []string{"cluster", "fsm"}, "consensus has one owner; fsm implements its FSM interface"},
	{"github.com/hashicorp/raft-boltdb", nil, "version 1 dies under the race detector: use raft-boltdb/v2"},
	{"github.com/hashicorp/raft-boltdb/v2", []string{"cluster"}, "the log store is the cluster's"},
	{"go.etcd.io/bbolt", []string{"cluster"}, "the log store is the cluster's"},
	{"github.com/hashicorp/memberlist", []string{"cluster"}, "gossip is a hint that only the cluster reads"},
	{"github.com/hashicorp/yamux", []string{"cluster"}, "node-to-node calls have one transport"},
	{"github.com/hashicorp/go-hclog", []string{"cluster"}, "raft's logger is turned into slog where raft is"},
	{"github.com/valyala/fasthttp", []string{"api/edge", "bench/load"}, "request bytes are reused after the handler: one package copies them; the bench has a client and a reference"},
	{"github.com/fasthttp/router", []string{"api/edge"}, "one route table"},
	{"github.com/getkin/kin-openapi", []string{"api"}, "one route table is the source of the OpenAPI document"},
	{"github.com/hashicorp/golang-lru", []string{"api/execution"}, "what ended executions answer is kept where it is answered"},
	{"github.com/golang-jwt/jwt", []string{"api/auth"}, "tokens are read and signed in one place"},
	{"golang.org/x/crypto/acme", []string{"node"}, "certificates of the API are fetched where it is opened"},
	{"golang.org/x/crypto/argon2", []string{"api/auth"}, "passwords are hashed in one place"},
	{"github.com/NVIDIA/go-nvml", []string{"gpu"}, "devices have one owner; go-nvml needs cgo"},
	{"github.com/moby/profiles", []string{"node/executor"}, "code is executed in one place"},
	{"github.com/moby/moby", []string{"node/executor/docker"}, "access to an engine is root on the machine: one package has it"},
	{"github.com/docker/go-units", []string{"node/executor/docker"}, "the engine's client takes limits in its types"},
	{"github.com/containerd/errdefs", []string{"node/executor/docker"}, "the engine's errors are told apart where it is called"},
	{"github.com/distribution/reference", []string{"api/submission", "composefile", "node/executor/docker"}, "names of images are read as engines read them"},
	{"github.com/opencontainers/image-spec", []string{"node/executor/docker"}, "platforms of images are the engine's"},
	{"github.com/google/go-containerregistry", []string{"node/executor/docker"}, "pulls sign in to registries in one place"},
	{"github.com/opencontainers/go-digest", []string{"node/executor/docker"}, "layers are named by digests"},
	{"github.com/aws/aws-sdk-go-v2", []string{"bench/load", "node/executor/docker", "node/executor/mount", "node/gateway"}, "Amazon's registry needs a token of its own, the S3 gateway speaks in its types, and mounts and a benchmark are clients of that"},
	{"github.com/aws/smithy-go", []string{"node/executor/docker", "node/executor/mount"}, "what a service answered is said in its types"},
	{"github.com/sirupsen/logrus", []string{"composefile"}, "only to silence the library that logs with it"},
	{"github.com/compose-spec/compose-go", []string{"composefile"}, "Compose files are read in one place"},
	{"github.com/opencontainers/runtime-spec", []string{"node/executor"}, "code is executed in one place"},
	{"github.com/hanwen/go-fuse", []string{"node/executor/mount"}, "one process is a file system"},
	{"github.com/landlock-lsm/go-landlock", []string{"node/executor"}, "code is executed in one place"},
	{"github.com/elastic/go-seccomp-bpf", []string{"node/executor"}, "code is executed in one place"},
	{"github.com/google/nftables", []string{"node/executor"}, "the network of executions is made in one place"},
	{"github.com/vishvananda", []string{"node/executor"}, "the network of executions is made in one place"},
	{"golang.org/x/net/bpf", []string{"node/executor"}, "filters of system calls are assembled in one place"},
	{"github.com/tink-crypto/tink-go", []string{"node/secrets"}, "encryption at rest has one owner"},
	{"github.com/gofiber/fiber", []string{"node/gateway"}, "requests of versitygw are of its types"},
	{"gocloud.dev", []string{"node/objects/remote"}, "object stores of others are reached in one place"},
	{"google.golang.org/api/googleapi", []string{"node/objects/remote"}, "object stores of others are reached in one place"},
	{"github.com/Azure/azure-sdk-for-go/sdk", []string{"node/objects/remote"}, "object stores of others are reached in one place"},
	{"github.com/versity/versitygw", []string{"node/gateway", "node/objects/remote/storetest"}, "the S3 protocol is spoken in one place"},
	{"github.com/klauspost/compress", []string{"node/logs/archive", "api/edge/answer"}, "stored output is compressed in one place, and answers in another"},
	{"github.com/fsnotify/fsnotify", []string{"node/logs"}, "only output is watched"},
	{"github.com/spf13", []string{"cmd"}, "only commands have flags"},
	{"github.com/jedib0t/go-pretty", []string{"cmd"}, "only commands draw tables"},
	{"github.com/go-git/go-git", []string{"cmd/berth/source"}, "ignore files are read where directories are sent"},
	{"golang.org/x/term", []string{"cmd"}, "only commands have a terminal"},
	{"github.com/knadh/koanf", []string{"cmd", "node"}, "configuration is read once, into node.Config; no part reads it by itself"},
	{"github.com/go-viper/mapstructure", []string{"node"}, "configuration is read once, into node.Config; no part reads it by itself"},
	{"github.com/goccy/go-yaml", []string{"cmd", "composefile", "gpu", "node"}, "YAML is configuration, a GPU file or a Compose file"},
	{"github.com/fxamacker/cbor", []string{"bench", "cluster", "fsm", "node"}, "commands, calls and snapshots are CBOR; nothing else is"},
	{"github.com/prometheus", []string{"api", "bench", "cluster", "fsm", "gpu", "node", "scheduler"}, "every part has a metrics.go; the vocabulary and commands measure nothing"},
	{"github.com/cenkalti/backoff", []string{"api/client", "cluster", "cmd", "node"}, "retries wait with a library"},
	{"github.com/google/uuid", []string{"api", "cluster", "cmd", "node"}, "ids are made where requests and nodes begin; the state makes none"},
	{"golang.org/x/sys", []string{"bench", "cluster", "cmd", "gpu", "node"}, "system calls belong to parts that touch the machine"},
	{"github.com/anishathalye/porcupine", []string{"bench/faults"}, "histories of clients are checked where faults are made"},
	{"gonum.org/v1/gonum", []string{"bench", "scheduler/selection"}, "distributions are computed where choices are judged"},
	{"golang.org/x/time", []string{"api", "cluster", "node"}, "rates are limited where requests come in"},
	{"golang.org/x/sync", []string{"api", "bench", "cluster", "cmd", "node"}, "pure code starts no goroutine"},
	{"gonum.org/v1/plot", []string{"bench", "scheduler/selection/chart"}, "charts are drawn beside what they show"},
	{"github.com/standard-webhooks/standard-webhooks/libraries", []string{"node/callback"}, "callbacks are signed in one place"},
	{"github.com/coreos/go-oidc", []string{"node/identity"}, "identity providers are spoken to in one place"},
	{"golang.org/x/oauth2", []string{"node/identity"}, "identity providers are spoken to in one place"},
	{"github.com/zitadel/oidc", []string{"node"}, "tests sign in at a real provider"},
	{"github.com/stripe/stripe-go", []string{"node"}, "the payment provider is spoken to in one place"},
	{"codeberg.org/go-pdf/fpdf", []string{"api/statement"}, "statements are printed in one place"},
	{"codeberg.org/go-fonts/liberation", []string{"api/statement"}, "only statements print names"},
	{"golang.org/x/image", []string{"api/statement"}, "only statements print names"},
	{"os/exec", []string{"bench", "cmd/berth/clitest", "cmd/berth/dev", "node/executor", "node/nodetest", "node/objects/remote/storetest"}, "processes are started by the executor, and by what starts whole nodes or servers for tests"},
	{"log", []string{"cluster"}, "logs are structured: use log/slog with the Config's Logger; memberlist knows only log"},
	{"testing", []string{
		"cmd/berth/clitest", "node/executor/docker/dockertest", "node/executor/packages/wheeltest", "node/nodetest",
		"node/objects/remote/storetest", "node/statetest",
	}, "test code belongs to _test.go files"},
	{"github.com/stretchr/testify", nil, "tests use testing alone"},
}

// light are the packages that the supervisor of every attempt initialises: a
// library there costs each start milliseconds.
var light = []string{
	"compute", "fault", "node/logs", "node/executor/cgroup", "node/executor/early",
	"node/executor/journal", "node/executor/outputs", "node/executor/sandbox", "node/executor/supervise", "node/executor/supervise/mask",
}

// edge is one import of one file.
type edge struct {
	file string
	from string // Directory of the importing package.
	to   string // Import path.
	test bool
}

// edges returns all imports of the tree, whatever their build tags.
func edges(t *testing.T) []edge {
	t.Helper()
	var out []edge
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != "." && (name[0] == '.' || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(file) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			from := path.Dir(filepath.ToSlash(file))
			out = append(out, edge{file, from, to, strings.HasSuffix(file, "_test.go")})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// below reports whether p is dir or below it.
func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// longest returns the element of list whose key is the longest one that p is
// below of, nil when there is none.
func longest[T any](p string, list []T, key func(*T) string) *T {
	var best *T
	for i := range list {
		if k := key(&list[i]); below(p, k) && (best == nil || len(k) > len(key(best))) {
			best = &list[i]
		}
	}
	return best
}

// ruleOf returns the rule of a package, nil for none.
func ruleOf(dir string) *rule { return longest(dir, rules, func(r *rule) string { return r.dir }) }

// ours returns why package from may not import our package to, "" when it may.
func ours(from, to string) string {
	if slices.Contains(testsOnly, to) {
		return "only tests import it"
	}
	r := ruleOf(from)
	if r == nil || r.dir == "node" && from != "node" {
		return "the package has no line in the table of imports; give it one, with its reason"
	}
	if below(to, r.dir) {
		return ""
	}
	for _, may := range r.may {
		dir, all := strings.CutSuffix(may, "/...")
		if to == dir || all && below(to, dir) {
			return ""
		}
	}
	return r.why
}

// theirs returns why package from may not import the library to, "" when it
// may.
func theirs(from, to string) string {
	first, _, _ := strings.Cut(to, "/")
	outside := strings.Contains(first, ".")
	if outside && slices.Contains(light, from) && !below(to, "golang.org/x/sys") {
		return "every attempt's supervisor initialises this package: keep it light"
	}
	l := longest(to, libraries, func(l *library) string { return l.path })
	switch {
	case l == nil && outside:
		return "the library has no owner in the table; give it a line there and in docs/dependencies.md"
	case l == nil || !outside && l.path != to:
		return "" // The rest of the standard library.
	}
	for _, owner := range l.owners {
		if below(from, owner) {
			return ""
		}
	}
	return l.why
}

// refusal returns why from may not import to in other than test code.
func refusal(from, to string) string {
	if local, ok := strings.CutPrefix(to, module+"/"); ok {
		return ours(from, local)
	}
	return theirs(from, to)
}

func TestImportsGoDown(t *testing.T) {
	all := edges(t)
	if len(all) < 100 {
		t.Fatalf("only %d imports found: this is not the tree", len(all))
	}
	for _, e := range all {
		if e.test {
			if below(e.to, "github.com/stretchr/testify") {
				t.Errorf("%s imports %s: tests use testing alone", e.file, e.to)
			}
			continue
		}
		if why := refusal(e.from, e.to); why != "" {
			t.Errorf("%s imports %s: %s", e.file, e.to, why)
		}
	}
}

// TestTheTableRefuses holds that the table means something: edges that the
// design forbids are refused, and those that it draws are not.
func TestTheTableRefuses(t *testing.T) {
	tests := []struct {
		from, to string
		ok       bool
	}{
		{"compute", "berth/fsm", false},
		{"compute", "github.com/fxamacker/cbor/v2", false},
		{"compute", "encoding/json", true},
		{"scheduler", "berth/fsm", false},
		{"scheduler", "github.com/hashicorp/raft", false},
		{"scheduler", "berth/compute", true},
		{"fsm", "berth/scheduler", false},
		{"fsm", "berth/fsm/store", true},
		{"fsm/archive", "berth/fsm", false},
		{"fsm/command", "berth/fsm", false},
		{"fsm/store", "berth/fsm", false},
		{"fsm/store", "berth/compute", false},
		{"fsm", "github.com/hashicorp/raft", true},
		{"cluster", "berth/fsm", false},
		{"cluster", "berth/cluster/rpc", true},
		{"cluster/gossip", "berth/cluster", false},
		{"cluster/replica", "berth/cluster/gossip", false},
		{"cluster", "github.com/hashicorp/raft-boltdb", false},
		{"cluster", "github.com/hashicorp/raft-boltdb/v2", true},
		{"gpu", "os/exec", false},
		{"api", "berth/fsm", false},
		{"api/handler", "berth/fsm", true},
		{"api/handler", "berth/api/account", false},
		{"api/account", "berth/cluster", false},
		{"api/account", "berth/api/billing", false},
		{"api/execution", "berth/api/deployment", false},
		{"api/deployment", "berth/api/execution", true},
		{"api/edge", "berth/api", false},
		{"api", "github.com/valyala/fasthttp", false},
		{"api/wire", "berth/fsm", false},
		{"api/client", "berth/api", false},
		{"node", "github.com/valyala/fasthttp", false},
		{"node", "berth/scheduler", true},
		{"node", "berth/node/nodetest", false},
		{"node/executor", "berth/node/logs", true},
		{"node/executor", "berth/node", false},
		{"node/executor/supervise", "github.com/prometheus/client_golang/prometheus", false},
		{"node/logs", "berth/node/storage", false},
		{"node/somethingnew", "berth/compute", false},
		{"cmd/berth", "berth/node", true},
		{"cmd/berth", "berth/fsm", false},
		{"cmd/berth", "berth/cmd/berth/clitest", false},
		{"cmd/berth/admin", "berth/node", false},
		{"cmd/berth/cli", "berth/cmd/berth/admin", false},
		{"somethingnew", "berth/compute", false},
		{"api", "github.com/new/library", false},
		{"api", "log", false},
		{"api", "log/slog", true},
		{"api", "testing", false},
	}
	for _, tt := range tests {
		if why := refusal(tt.from, tt.to); (why == "") != tt.ok {
			t.Errorf("%s imports %s: refused with %q, want allowed: %v", tt.from, tt.to, why, tt.ok)
		}
	}
}

// TestTheTableIsCurrent checks that each rule is about a package that exists and allows no
// import that nothing has, and that each library with owners is imported.
func TestTheTableIsCurrent(t *testing.T) {
	all := edges(t)
	own := slices.DeleteFunc(slices.Clone(all), func(e edge) bool { return e.test || ruleOf(e.from) == nil })
	for _, r := range rules {
		if !slices.ContainsFunc(all, func(e edge) bool { return below(e.from, r.dir) || e.to == module+"/"+r.dir }) {
			t.Errorf("there is a rule for %s, and no such package", r.dir)
		}
		for _, may := range r.may {
			dir, all := strings.CutSuffix(may, "/...")
			if !slices.ContainsFunc(own, func(e edge) bool {
				to := strings.TrimPrefix(e.to, module+"/")
				return ruleOf(e.from).dir == r.dir && (to == dir || all && below(to, dir))
			}) {
				t.Errorf("%s may import %s, and does not", r.dir, may)
			}
		}
	}
	for _, l := range libraries {
		if len(l.owners) > 0 && !slices.ContainsFunc(all, func(e edge) bool { return below(e.to, l.path) }) {
			t.Errorf("%s has owners, and nothing imports it", l.path)
		}
	}
}
