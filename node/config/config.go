package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/compute"
	"berth/gpu"
)

// maxDrain is the longest drain. The limit of a stop, 20 seconds, includes it.
const maxDrain = 10 * time.Second

// maxDrainWait is the longest wait for the requests of a replica that is to stop. It is
// paid for meanwhile.
const maxDrainWait = time.Hour

// Config is every setting of one node. The field tags are the keys of the file.
// Flags and variables have the same names: api.addr in the file is --api.addr
// and BERTH_API_ADDR.
type Config struct {
	Name      string `koanf:"name" usage:"Name of this node for people; default: the host's name."`
	Role      string `koanf:"role" usage:"Role of this node: server (it holds the state) or worker (it executes only)."`
	DataDir   string `koanf:"data_dir" usage:"Directory for everything this node keeps."`
	Advertise string `koanf:"advertise" usage:"Host under which other nodes reach this one; default: the listeners'."`
	Voters    int    `koanf:"voters" usage:"Servers that vote: 1, 3, 5, or 0 for 3, and 5 from seven servers on."`

	API     API     `koanf:"api"`
	RPC     Addr    `koanf:"rpc"`
	Gossip  Addr    `koanf:"gossip"`
	Join    Join    `koanf:"join"`
	Raft    Raft    `koanf:"raft"`
	GPUs    GPU     `koanf:"gpus"`
	Python  Python  `koanf:"python"`
	Exec    Exec    `koanf:"executor"`
	Storage Storage `koanf:"storage"`
	Backup  Backup  `koanf:"backup"`
	Metrics Metrics `koanf:"metrics"`
	Billing Billing `koanf:"billing"`
	Limits  Limits  `koanf:"limits"`

	Payments Payments `koanf:"payments"`
	Accounts Accounts `koanf:"accounts"`
	OIDC     OIDC     `koanf:"oidc"`

	Callbacks Callbacks `koanf:"callbacks"`
	Services  Services  `koanf:"services"`
	Docker    Docker    `koanf:"docker"`
	Inference Inference `koanf:"inference"`
	S3        S3        `koanf:"s3"`

	Retention Retention `koanf:"retention"`
	Output    Output    `koanf:"output"`

	Log Log `koanf:"log"`
}

// API is where and how the REST API is served.
type API struct {
	Addr      string `koanf:"addr" usage:"host:port of the REST API; port 0 takes a free one."`
	PublicURL string `koanf:"public_url" usage:"URL under which clients reach this API; default: from the listener."`
	TLS       TLS    `koanf:"tls"`

	Insecure  bool     `koanf:"insecure" usage:"Serve plain HTTP to other machines: tokens are then sent in clear text."`
	Hosts     []string `koanf:"hosts" usage:"Host names under which the API is served; empty: any."`
	Origins   []string `koanf:"cors_origins" usage:"Origins of web pages that may call the API; empty: none."`
	AccessLog bool     `koanf:"access_log" usage:"Log every request."`

	Drain time.Duration `koanf:"drain" usage:"How long a node that stops still answers while /readyz sends clients away."`
}

// TLS names the certificate of the REST API.
type TLS struct {
	Cert string `koanf:"cert" usage:"PEM file with the API's certificate chain; empty serves plain HTTP."`
	Key  string `koanf:"key" usage:"PEM file with the certificate's private key."`
	ACME ACME   `koanf:"acme"`
}

// Addr is one listener.
type Addr struct {
	Addr string `koanf:"addr" usage:"host:port to listen on; port 0 takes a free one."`
}

// Join is how a new node finds its cluster. Without hosts the node makes
// a cluster of its own at its first start.
type Join struct {
	Hosts     []string `koanf:"hosts" usage:"rpc.addr of nodes of the cluster to join; empty makes a new one."`
	TokenFile string   `koanf:"token_file" usage:"File with the join token; needed until the node has joined."`
}

// Raft tunes consensus.
//
//nolint:lll // A field and its rules are one line.
type Raft struct {
	Profile      string        `koanf:"profile" usage:"Timing: lan fails over within a second, default within three; auto measures disk and network at the start."`
	ReplaceAfter time.Duration `koanf:"replace_after" usage:"After what silence of a voter another votes in its place."`
}

// GPU is where the node's GPUs come from.
//
//nolint:lll // A field and its rules are one line.
type GPU struct {
	Source    string   `koanf:"source" usage:"Where GPUs come from: auto, nvml, file, simulated or none."`
	File      string   `koanf:"file" usage:"List of devices, for source file; read again when it changes."`
	Simulated []string `koanf:"simulated" usage:"Simulated devices as type:count, type:count/island or type.mig_slice:count, for source simulated."`
}

// Python is the interpreter of Python executions, and where their packages are.
//
//nolint:lll // A field and its rules are one line.
type Python struct {
	Interpreter string   `koanf:"interpreter" usage:"Python interpreter; default: python3 of this machine."`
	SiteDirs    []string `koanf:"site_dirs" usage:"Directories with packages that every execution may import."`

	Index          string        `koanf:"index" usage:"URL of the index of packages (PEP 503); default: https://pypi.org/simple."`
	IndexHosts     []string      `koanf:"index_hosts" usage:"Further hosts, as host:port, to which the index links; installers reach no others."`
	FindLinks      []string      `koanf:"find_links" usage:"Directories of this node, or URLs, with packages beside the index."`
	Offline        bool          `koanf:"offline" usage:"Packages come from python.find_links only."`
	InstallTimeout time.Duration `koanf:"install_timeout" usage:"Longest installation of packages."`
	InstallMiB     int64         `koanf:"install_mib" usage:"Largest installation of packages."`
	KeepMiB        int64         `koanf:"keep_mib" usage:"Disk space for installations that are kept; the longest unused ones are removed."`
}

// Exec bounds what executions may do.
//
//nolint:lll // A field and its rules are one line.
type Exec struct {
	Network    string        `koanf:"network" usage:"egress, or none: no execution on this node gets a network."`
	Scratch    string        `koanf:"scratch" usage:"Where executions write: disk (a file system of their own), or memory, inside the memory limit."`
	ScratchMiB int64         `koanf:"scratch_mib" usage:"Scratch space of an execution that asks for no other size."`
	Grace      time.Duration `koanf:"grace" usage:"Time between SIGTERM and SIGKILL."`
	Mounts     []Mount       `koanf:"mounts" usage:"Directories of this node that executions may ask for as volumes."`
}

// Mount is a directory of the node that executions may ask for as a volume.
type Mount struct {
	Name string `koanf:"name"`
	Path string `koanf:"path"`
	RO   bool   `koanf:"ro"`

	Always bool `koanf:"always"` // Executions have it without asking.
}

// Callbacks is where the ends of executions may be told.
//
//nolint:lll // A field and its rules are one line.
type Callbacks struct {
	Allow  []string `koanf:"allow" usage:"Networks, such as 10.1.0.0/16, that callbacks may reach although they are not public."`
	CAFile string   `koanf:"ca_file" usage:"PEM file with further authorities of the receivers' certificates."`
}

// Docker is the engine of containers.
//
//nolint:lll // A field and its rules are one line.
type Docker struct {
	Host        string        `koanf:"host" usage:"Address of the Docker engine: auto (the machine's own, if it has one), off, or a socket such as unix:///run/docker.sock."`
	Runtime     string        `koanf:"runtime" usage:"Runtime of the engine for containers; empty: runc."`
	Registries  []string      `koanf:"registries" usage:"Hosts from which images may be pulled; empty: every registry with public addresses."`
	Compose     string        `koanf:"compose" usage:"Program of Docker Compose, version 2 or newer; empty: where packages put it."`
	ECR         string        `koanf:"ecr" usage:"Endpoint of Amazon ECR; empty: the public one of the region."`
	KeepMiB     int64         `koanf:"keep_mib" usage:"Disk space for pulled images: the least recently used go first."`
	ImageMiB    int64         `koanf:"image_mib" usage:"The largest image, as it is transferred; on the disk it may take four times as much."`
	PullTimeout time.Duration `koanf:"pull_timeout" usage:"Time to pull one image."`
}

// Values of Docker.Host that are no addresses.
const (
	DockerOff  = "off"  // The node executes no containers.
	DockerAuto = "auto" // The machine's own engine, if it has one.
)

// Address returns the address of the engine, "" for none. There may be no engine.
func (d *Docker) Address() string {
	switch d.Host {
	case DockerOff:
		return ""
	case DockerAuto:
		return machineEngine
	}
	return d.Host
}

// machineEngine is where a machine's own engine listens.
const machineEngine = "unix:///var/run/docker.sock"

// Services is how services are reached and started again.
//
//nolint:lll // A field and its rules are one line.
type Services struct {
	URL          string        `koanf:"url" usage:"Base of the URLs of services where they have an origin of their own, such as another host name of the nodes; default: that of the API, and browsers keep their pages in a sandbox."`
	BackoffFirst time.Duration `koanf:"backoff_first" usage:"How long a replica of a service waits that ended, the first time; doubled with each end."`
	BackoffMost  time.Duration `koanf:"backoff_most" usage:"The longest such wait."`
	BackoffReset time.Duration `koanf:"backoff_reset" usage:"A replica that ran for this long begins with the first wait again."`
	DrainWait    time.Duration `koanf:"drain_wait" usage:"How long a ready replica that is to stop may finish the requests that it has, before SIGTERM; 0: not at all."`
}

// S3 is where stored files are served to clients of S3.
type S3 struct {
	Addr      string `koanf:"addr" usage:"host:port of the S3 endpoint; auto: port 6473 at the API's address; off: none."`
	PublicURL string `koanf:"public_url" usage:"URL under which clients reach it; default: from the listener."`
}

// Values of S3.Addr that are no addresses.
const (
	S3Auto = "auto"
	S3Off  = "off"

	s3Port = "6473"
)

// S3Addr returns the address of the S3 endpoint, "" for none: also where another part of the
// node has the port that S3Auto stands for.
func (c *Config) S3Addr() string {
	switch c.S3.Addr {
	case S3Off:
		return ""
	case S3Auto:
		for _, other := range []string{c.API.Addr, c.RPC.Addr, c.Gossip.Addr, c.Metrics.Addr} {
			if _, port, err := net.SplitHostPort(other); err == nil && port == s3Port {
				return ""
			}
		}
		host, _, err := net.SplitHostPort(c.API.Addr)
		if err != nil {
			return "" // The address of the API is refused.
		}
		return net.JoinHostPort(host, s3Port)
	}
	return c.S3.Addr
}

// Storage is how blobs are kept.
type Storage struct {
	Replicas   int           `koanf:"replicas" usage:"Nodes that keep each blob."`
	ScrubEvery time.Duration `koanf:"scrub_every" usage:"How often log, snapshots, blobs, state are checked; 0: never."`

	Objects     string `koanf:"objects" usage:"Where stored files go: s3://, azblob:// or gs:// URL; default: disks."`
	ObjectsFrom string `koanf:"objects_from" usage:"Such a URL where files are that are not moved yet."`
}

// Backup is how the leader saves backups of the state.
type Backup struct {
	Every time.Duration `koanf:"every" usage:"How often the leader saves a backup; 0: never."`
	To    string        `koanf:"to" usage:"Directory for backups, the same one for all servers where it can be."`
	Keep  int           `koanf:"keep" usage:"Backups that are kept; older ones are removed."`
}

// Metrics is where metrics are served.
//
//nolint:lll // A field and its rules are one line.
type Metrics struct {
	Addr      string `koanf:"addr" usage:"host:port of a listener of its own for /metrics; default: on the API's."`
	TokenFile string `koanf:"token_file" usage:"File with the bearer token that /metrics wants; empty: metrics are for this machine, and for all with api.insecure."`
	Insecure  bool   `koanf:"insecure" usage:"Serve metrics.addr beyond this machine, as plain HTTP."`
}

// Billing has the prices of a new cluster, and whether credits are enforced.
//
//nolint:lll // A field and its rules are one line.
type Billing struct {
	Mode        string             `koanf:"mode" usage:"Billing of a new cluster: meter only counts credits, enforce refuses work without them. Later: berth admin billing mode."`
	SignupGrant float64            `koanf:"signup_grant" usage:"Credits that a new organization gets."`
	Prices      map[string]float64 `koanf:"prices" usage:"Credits per hour of a GPU type or cpu in a new cluster, as in a40=1.2,l4=0.5. Later: berth admin price set."`
}

// PriceList returns the prices of b per second. They have been validated.
func (b *Billing) PriceList() map[string]compute.Price {
	list := make(map[string]compute.Price, len(b.Prices))
	for name, perHour := range b.Prices {
		if price, err := compute.PriceOfNumber(perHour); err == nil {
			list[name] = price
		}
	}
	return list
}

// Limits bounds one organization or request.
type Limits struct {
	TimeoutMax     time.Duration `koanf:"timeout_max" usage:"Longest time limit that an execution may ask for."`
	TimeoutDefault time.Duration `koanf:"timeout_default" usage:"Time limit of an execution that asks for none."`
	Concurrent     int           `koanf:"concurrent" usage:"Executions of one organization that run at once."`
	Queued         int           `koanf:"queued" usage:"Executions of one organization that wait."`
	KeyRate        float64       `koanf:"key_rate" usage:"Requests per second of one API key or user, at each node."`
	OrgRate        float64       `koanf:"org_rate" usage:"Requests per second of one organization, at each node."`
	AddressRate    float64       `koanf:"address_rate" usage:"Requests per second of a stranger's address, at each node."`
	Keys           int           `koanf:"keys" usage:"API keys of one organization."`
	ShareHalfLife  time.Duration `koanf:"share_half_life" usage:"How long until half of past use counts in fair share."`
	PreemptMinRun  time.Duration `koanf:"preempt_min_run" usage:"How long preemptible work is left alone."`
	PreemptNotice  time.Duration `koanf:"preempt_notice" usage:"Time between the notice of a preemption and SIGTERM."`
	BundleMax      int64         `koanf:"bundle_max" usage:"Bytes of the files of one uploaded bundle; at most 32 GiB."`
	StaleAuthMax   time.Duration `koanf:"stale_auth_max" usage:"How long stale reads go on while there is no leader."`
}

// Retention says which finished executions leave the replicated state for
// archives on the servers' disks.
//
//nolint:lll // A field and its rules are one line.
type Retention struct {
	Age   time.Duration `koanf:"age" usage:"How long finished executions stay in the replicated state; then they are in archives on disk."`
	Count int           `koanf:"count" usage:"How many finished executions stay in the replicated state; the oldest ends go to archives first."`
}

// Output says how long a node keeps the output and the metrics of ended executions, and
// as long the copies of other nodes' output, and how much of it is archived then.
//
//nolint:lll // A field and its rules are one line.
type Output struct {
	Age     time.Duration `koanf:"age" usage:"How long the output of ended executions is kept, here and as a copy on another node."`
	SizeMiB int64         `koanf:"size_mib" usage:"Space for the output of ended executions on this node, and as much for copies of other nodes' output; the oldest goes first."`

	ArchiveMiB int64 `koanf:"archive_mib" usage:"Space for output that has left the nodes' disks, compressed and of the whole cluster, in the storage of its organizations; the oldest goes first, by the leader's configuration. 0 archives none."`
}

// Log is how the node logs.
//
//nolint:lll // A field and its rules are one line.
type Log struct {
	Level  string `koanf:"level" usage:"debug, info, warn or error."`
	Format string `koanf:"format" usage:"text or json."`

	AuditFile string `koanf:"audit_file" usage:"File to which this server appends the lines of all audit trails, as JSON; empty: none."`
}

// Default returns the configuration of a node without any settings.
func Default() Config {
	name, err := os.Hostname()
	if err != nil {
		name = "berth"
	}
	return Config{
		Name:    name,
		Role:    compute.RoleServer.String(),
		DataDir: "/var/lib/berth",
		API:     API{Addr: "127.0.0.1:6470", Drain: 5 * time.Second},
		RPC:     Addr{Addr: "0.0.0.0:6471"},
		Gossip:  Addr{Addr: "0.0.0.0:6472"},
		Raft:    Raft{Profile: "auto", ReplaceAfter: 10 * time.Minute},
		GPUs:    GPU{Source: "auto"},
		Python:  Python{InstallTimeout: 15 * time.Minute, InstallMiB: 20 << 10, KeepMiB: 100 << 10},
		Exec:    Exec{Network: "egress", Scratch: "disk", ScratchMiB: 50 << 10, Grace: 10 * time.Second},
		S3:      S3{Addr: S3Auto},
		Storage: Storage{Replicas: 2, ScrubEvery: 6 * time.Hour},
		Backup:  Backup{Keep: 7},
		Docker: Docker{
			Host: DockerAuto, KeepMiB: 100 << 10, ImageMiB: 40 << 10, PullTimeout: 30 * time.Minute,
		},
		Services: Services{
			BackoffFirst: compute.DefaultBackoffFirst, BackoffMost: compute.DefaultBackoffMost,
			BackoffReset: compute.DefaultBackoffReset, DrainWait: 30 * time.Second,
		},
		Inference: defaultInference(),
		Billing:   Billing{Mode: "meter", SignupGrant: 100},
		Payments:  Payments{Currency: "eur", UnitAmount: 100},
		Limits: Limits{
			TimeoutMax: 600 * time.Second, TimeoutDefault: time.Minute, Concurrent: 100, Queued: 10_000, Keys: 50,
			BundleMax: 1 << 30, StaleAuthMax: 10 * time.Minute, ShareHalfLife: 24 * time.Hour,
			PreemptMinRun: time.Minute, PreemptNotice: 30 * time.Second,
			KeyRate: 50_000, OrgRate: 100_000, AddressRate: 50,
		},
		Retention: Retention{Age: 90 * 24 * time.Hour, Count: 1_000_000},
		Output:    Output{Age: 7 * 24 * time.Hour, SizeMiB: 16 << 10, ArchiveMiB: 64 << 10},

		Log: Log{Level: "info", Format: "text"},
	}
}

// Fault is one thing wrong with a configuration.
type Fault struct { //nolint:errname // Primarily a fault in a file, and also an error.
	Key     string // As in "api.addr"; "" for the file as a whole.
	Line    int    // In the file; 0 when it does not come from a file.
	Message string // Names the change to make.
}

// Error returns the fault in one line.
func (f *Fault) Error() string {
	text := f.Message
	if f.Key != "" {
		text = f.Key + ": " + text
	}
	if f.Line > 0 {
		text = fmt.Sprintf("line %d: %s", f.Line, text)
	}
	return text
}

// Validate returns all faults of c, each a *Fault, joined.
func (c *Config) Validate() error {
	v := validator{}
	v.check("name", nodeName.MatchString(c.Name), "must be 1 to 63 letters, digits, dots or hyphens")
	v.oneOf("role", c.Role, compute.RoleServer.String(), compute.RoleWorker.String())
	v.check("join.hosts", c.Role != compute.RoleWorker.String() || len(c.Join.Hosts) > 0,
		"is needed with role worker: a worker makes no cluster")
	v.check("data_dir", filepath.IsAbs(c.DataDir), "must be an absolute path")
	v.check("voters", c.Voters == 0 || c.Voters == 1 || c.Voters == 3 || c.Voters == 5,
		"must be 1, 3, 5, or 0 for 3, and 5 from seven servers on")
	v.address("api.addr", c.API.Addr)
	v.address("rpc.addr", c.RPC.Addr)
	v.address("gossip.addr", c.Gossip.Addr)
	if c.Metrics.Addr != "" {
		v.address("metrics.addr", c.Metrics.Addr)
	}
	v.baseURL("api.public_url", c.API.PublicURL)
	v.check("api.drain", c.API.Drain >= 0 && c.API.Drain <= maxDrain, "must be 0 to "+maxDrain.String())
	v.front(c)
	for _, host := range c.Join.Hosts {
		v.address("join.hosts", host)
	}
	v.oneOf("raft.profile", c.Raft.Profile, "auto", "default", "lan")
	v.check("raft.replace_after", c.Raft.ReplaceAfter >= 10*time.Second, "must be at least 10s")
	v.gpus(c.GPUs)
	v.python(c.Python)
	v.oneOf("executor.network", c.Exec.Network, "egress", "none")
	v.oneOf("executor.scratch", c.Exec.Scratch, "disk", "memory")
	v.check("executor.scratch_mib", c.Exec.ScratchMiB >= 16, "must be at least 16")
	v.check("executor.grace", c.Exec.Grace > 0 && c.Exec.Grace <= 5*time.Minute, "must be more than 0 and at most 5m")
	for _, m := range c.Exec.Mounts {
		v.check("executor.mounts", mountName.MatchString(m.Name) && filepath.IsAbs(m.Path),
			fmt.Sprintf("mount %q needs a name of lower-case letters, digits and hyphens and an absolute path", m.Name))
	}
	for _, text := range c.Callbacks.Allow {
		_, err := netip.ParsePrefix(text)
		v.check("callbacks.allow", err == nil, fmt.Sprintf("%q is not a network such as 10.1.0.0/16", text))
	}
	v.docker(c.Docker)
	v.check("services.drain_wait", c.Services.DrainWait >= 0 && c.Services.DrainWait <= maxDrainWait,
		"must be 0 to "+maxDrainWait.String())
	v.check("callbacks.ca_file", c.Callbacks.CAFile == "" || filepath.IsAbs(c.Callbacks.CAFile),
		"must be an absolute path")
	v.check("storage.replicas", c.Storage.Replicas >= 1 && c.Storage.Replicas <= 5, "must be 1 to 5")
	v.check("storage.objects", objectStore(c.Storage.Objects), notObjectStore)
	v.check("storage.objects_from", objectStore(c.Storage.ObjectsFrom), notObjectStore)
	v.check("storage.scrub_every", c.Storage.ScrubEvery == 0 || c.Storage.ScrubEvery >= time.Minute,
		"must be 0 or at least 1m")
	v.check("backup.every", c.Backup.Every == 0 || c.Backup.Every >= time.Minute, "must be 0 or at least 1m")
	v.check("backup.to", c.Backup.Every == 0 || filepath.IsAbs(c.Backup.To),
		"must be an absolute path when backup.every is set")
	audit := c.Log.AuditFile
	v.check("log.audit_file", audit == "" || filepath.IsAbs(audit) && !below(c.DataDir, audit),
		"must be an absolute path outside of data_dir")
	v.check("backup.keep", c.Backup.Keep >= 1, "must be at least 1")
	v.inference(c.Inference)
	v.oneOf("billing.mode", c.Billing.Mode, "enforce", "meter")
	v.prices(c.Billing.Prices)
	v.check("billing.signup_grant", c.Billing.SignupGrant >= 0 && c.Billing.SignupGrant <= 1e9,
		"must be 0 to 1,000,000,000")
	v.payments(c.Payments)
	v.oidc(c.OIDC)
	v.limits(c.Limits)
	v.rates(c.Limits)
	v.check("retention.age", c.Retention.Age >= time.Minute, "must be at least 1m")
	v.check("retention.count", c.Retention.Count >= 1, "must be at least 1")
	v.check("output.age", c.Output.Age >= 10*time.Minute, "must be at least 10m")
	v.check("output.size_mib", c.Output.SizeMiB >= 64, "must be at least 64")
	v.check("output.archive_mib", c.Output.ArchiveMiB >= 0 && c.Output.ArchiveMiB < 1<<40, "must be 0, for none, or more")
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "text", "json")
	return errors.Join(v.faults...)
}

var (
	nodeName  = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.-]{0,62}$`)
	mountName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
)

// validator collects faults.
type validator struct{ faults []error }

func (v *validator) check(key string, ok bool, message string) {
	if !ok {
		v.faults = append(v.faults, &Fault{Key: key, Message: message})
	}
}

func (v *validator) oneOf(key, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	v.check(key, false, fmt.Sprintf("%q is not one of %s", value, strings.Join(allowed, ", ")))
}

// baseURL checks a URL that may be empty.
func (v *validator) baseURL(key, text string) {
	u, err := url.Parse(text)
	v.check(key, text == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "",
		"must be an http or https URL")
}

func (v *validator) address(key, value string) {
	v.check(key, isAddress(value), fmt.Sprintf("%q is not host:port", value))
}

func isAddress(value string) bool {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil
}

func (v *validator) gpus(c GPU) {
	v.oneOf("gpus.source", c.Source, "auto", "nvml", "file", "simulated", "none")
	v.check("gpus.file", c.Source != "file" || c.File != "", "is needed with gpus.source file")
	v.check("gpus.simulated", c.Source != "simulated" || len(c.Simulated) > 0, "is needed with gpus.source simulated")
	if len(c.Simulated) > 0 {
		_, err := gpu.ParseSimulated("", c.Simulated...)
		v.check("gpus.simulated", err == nil, fmt.Sprint(err))
	}
}

// prices checks the prices of a new cluster.
func (v *validator) prices(prices map[string]float64) {
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		key := "billing.prices." + name
		p, err := compute.ParseProfile(name)
		v.check(key, err == nil && (p.GPUType == name || name == compute.CPUPrice),
			"is not cpu or a GPU type in lower case, such as rtx_4090")
		_, err = compute.PriceOfNumber(prices[name])
		v.check(key, err == nil, fmt.Sprint(err))
	}
}

func (v *validator) python(c Python) {
	for _, link := range append([]string{c.Index}, c.FindLinks...) {
		u, err := url.Parse(link)
		isURL := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
		v.check("python.index", link != c.Index || link == "" || isURL, "must be an http or https URL")
		v.check("python.find_links", link == c.Index || isURL || filepath.IsAbs(link),
			fmt.Sprintf("%q is neither an absolute path nor an http or https URL", link))
	}
	for _, host := range c.IndexHosts {
		v.address("python.index_hosts", host)
	}
	v.check("python.find_links", !c.Offline || len(c.FindLinks) > 0, "is needed with python.offline")
	v.check("python.install_timeout", c.InstallTimeout >= time.Second && c.InstallTimeout <= 24*time.Hour,
		"must be 1s to 24h")
	v.check("python.install_mib", c.InstallMiB >= 64, "must be at least 64")
	v.check("python.keep_mib", c.KeepMiB >= 64, "must be at least 64")
}

func (v *validator) limits(c Limits) {
	v.check("limits.timeout_max", c.TimeoutMax >= time.Second, "must be at least 1s")
	v.check("limits.timeout_default", c.TimeoutDefault >= time.Second && c.TimeoutDefault <= c.TimeoutMax,
		"must be at least 1s and at most limits.timeout_max")
	v.check("limits.concurrent", c.Concurrent >= 1, "must be at least 1")
	v.check("limits.queued", c.Queued >= 1, "must be at least 1")
	v.check("limits.keys", c.Keys >= 1, "must be at least 1")
	v.check("limits.share_half_life", c.ShareHalfLife >= time.Minute, "must be at least 1m")
	v.check("limits.preempt_min_run", c.PreemptMinRun >= 0, "must not be negative")
	v.check("limits.preempt_notice", c.PreemptNotice >= 0 && c.PreemptNotice <= time.Hour, "must be 0 to 1h")
	v.check("limits.bundle_max", c.BundleMax > 0 && c.BundleMax <= 32<<30, "must be 1 to 34359738368")
	v.check("limits.stale_auth_max", c.StaleAuthMax >= 0, "must not be negative")
}

// notObjectStore is the fault of a URL that names no object store.
const notObjectStore = "must be a URL such as s3://bucket?region=eu-west-1, azblob://container or gs://bucket, " +
	"without secrets"

// objectStore reports whether text is the URL of an object store, or "".
func objectStore(text string) bool {
	u, err := url.Parse(text)
	known := err == nil && slices.Contains([]string{"s3", "azblob", "gs"}, u.Scheme)
	return text == "" || known && u.User == nil && u.Host != ""
}

// below reports whether a path is in a directory.
func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
