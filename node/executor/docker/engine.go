package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"berth/compute"
)

// DefaultHost is the address of a machine's own engine.
const DefaultHost = "unix:///var/run/docker.sock"

const (
	openTimeout = 5 * time.Second  // For the engine to answer when the node starts.
	callTimeout = time.Minute      // For a call that makes or removes something.
	killTimeout = 15 * time.Second // For a call that ends a container.
)

// Labels of what Berth makes on an engine.
const (
	labelNode    = "berth.node"    // The id of the node.
	labelAttempt = "berth.attempt" // Execution and epoch.
	labelSlot    = "berth.slot"    // The number of a network's slot.

	labelInternal = "berth.internal" // The same, of a network without a way out.
)

// Config has the settings of an Engine. Host, Node and Dir are required.
type Config struct {
	Host       string   // Address of the engine.
	Node       string   // The id of this node.
	Dir        string   // Where the list of pulled images is kept.
	Registries []string // Hosts from which images may be pulled; none for every public one.
	ECR        string   // Endpoint of Amazon ECR; "" for that of the key's region.
	KeepMiB    int64    // Disk space of the images that Berth pulled; 0 for 100 GiB.
	ImageMiB   int64    // The largest image, as it is transferred; 0 for 40 GiB.
	PullLimit  time.Duration
	Logger     *slog.Logger
	Now        func() time.Time
	Resolver   *net.Resolver // Resolves the names of registries; nil for the machine's.
	// Live reports whether an attempt has not ended. Images of such attempts are kept. Nil
	// for none.
	Live func(attempt string) bool
}

// nodeName returns the id of the node as it may stand in the name of an image.
func (c *Config) nodeName() string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(c.Node))
}

// Defaults of Config.
const (
	defaultKeepMiB   = 100 << 10
	defaultImageMiB  = 40 << 10
	defaultPullLimit = 30 * time.Minute
)

// Engine is the Docker engine of this machine, as a node uses it. Its methods are safe
// for concurrent use.
type Engine struct {
	cfg   Config
	api   *client.Client
	guard *guard
	free  func(dir string) (bytes int64, err error) // On the disk that has a directory.

	images *images

	mu sync.Mutex

	facts Facts
}

// Facts are an engine's description of itself.
type Facts struct {
	Version string // Version of the engine.
	Runtime string // The version of runc.
	Slices  bool   // systemd makes its cgroups.
	Weak    string // Why its isolation is below the minimum; "" if it is not.

	root      string   // The directory of its images; "" if it does not say.
	plain     []string // Registries that its operator calls insecure.
	plainNets []netip.Prefix
}

// Open connects to the engine. An error says why this machine has none that can be
// used.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	cfg.KeepMiB = cmp.Or(cfg.KeepMiB, defaultKeepMiB)
	cfg.ImageMiB = cmp.Or(cfg.ImageMiB, defaultImageMiB)
	cfg.PullLimit = cmp.Or(cfg.PullLimit, defaultPullLimit)
	facts, err := Probe(ctx, cfg.Host)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	api, err := client.New(client.WithHost(cfg.Host))
	if err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	e := &Engine{cfg: cfg, api: api, facts: facts, guard: newGuard(&cfg), free: freeBytes}
	if e.images, err = openImages(cfg.Dir, cfg.Now, cfg.Logger); err != nil {
		return nil, errors.Join(err, api.Close())
	}
	e.dropInterrupted(ctx)
	return e, nil
}

// Probe returns the facts of the engine at the address. An error says why it cannot
// be used.
func Probe(ctx context.Context, host string) (Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	silent := func(err error) error {
		return compute.Errorf(compute.CodeUnavailable, "no Docker engine answers at %s: %w", host, err)
	}
	if socket, local := strings.CutPrefix(host, "unix://"); local && !strings.HasPrefix(socket, "@") {
		if _, err := os.Stat(socket); err != nil {
			return Facts{}, silent(err) // A machine without an engine is asked every other second.
		}
	}
	api, err := client.New(client.WithHost(host))
	if err != nil {
		return Facts{}, fmt.Errorf("open engine: %w", err)
	}
	defer api.Close()
	info, err := api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return Facts{}, silent(err)
	}
	said := info.Info
	if said.OSType != runtime.GOOS {
		return Facts{}, compute.Errorf(compute.CodeUnavailable, "the engine executes %s containers", said.OSType)
	}
	facts := Facts{
		Version: said.ServerVersion, Runtime: said.RuncCommit.ID, Slices: said.CgroupDriver == "systemd",
		root: said.DockerRootDir,
	}
	if version, err := runcVersion(ctx, api, said.RuncCommit.ID); err == nil {
		facts.Runtime = version
	}
	facts.Weak = weakness(facts.Runtime, said.SecurityOptions)
	if said.RegistryConfig != nil {
		facts.plainNets = said.RegistryConfig.InsecureRegistryCIDRs
		for name, index := range said.RegistryConfig.IndexConfigs {
			if index != nil && !index.Secure {
				facts.plain = append(facts.plain, name)
			}
		}
	}
	return facts, nil
}

// runcVersion returns the version of runc, which the engine lists among its
// components.
func runcVersion(ctx context.Context, api *client.Client, otherwise string) (string, error) {
	version, err := api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return otherwise, err
	}
	for _, part := range version.Components {
		if part.Name == "runc" {
			return part.Version, nil
		}
	}
	return otherwise, nil
}

// minimum is the first version of runc in each release line without the escapes
// CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881.
func minimum() map[string][3]int {
	return map[string][3]int{"1.2": {1, 2, 8}, "1.3": {1, 3, 3}}
}

// firstFixed is the first release line that never had them.
var firstFixed = [3]int{1, 4, 0} //nolint:gochecknoglobals // Constant.

// weakness returns why an engine's isolation is below the minimum, "" if it is not.
func weakness(runc string, security []string) string {
	if !strings.Contains(strings.Join(security, " "), "seccomp") {
		return "the engine has no seccomp"
	}
	var v [3]int
	if n, _ := fmt.Sscanf(runc, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 3 {
		return fmt.Sprintf("the version of runc is not known (%q)", runc)
	}
	least, known := minimum()[fmt.Sprintf("%d.%d", v[0], v[1])]
	if !known {
		least = firstFixed
	}
	if before(v, least) {
		return fmt.Sprintf("runc %s has known escapes; 1.2.8, 1.3.3 or newer has not", runc)
	}
	return ""
}

func before(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// Ping returns an error unless the engine answers.
func (e *Engine) Ping(ctx context.Context) error {
	if _, err := e.api.Ping(ctx, client.PingOptions{}); err != nil {
		return fmt.Errorf("ping engine: %w", err)
	}
	return nil
}

// Refresh asks the engine for its facts again: another version may have been started.
func (e *Engine) Refresh(ctx context.Context) error {
	facts, err := Probe(ctx, e.cfg.Host)
	if err != nil {
		return err
	}
	// The client keeps the version of the interface that it agreed on at first.
	if _, err := e.api.Info(ctx, client.InfoOptions{}); err != nil {
		return fmt.Errorf("ask engine, which may need a restart of this node: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.facts = facts
	return nil
}

// Facts returns the facts of the engine when it was opened or refreshed.
func (e *Engine) Facts() Facts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.facts
}

// Host returns the address of the engine.
func (e *Engine) Host() string { return e.cfg.Host }

// Labels returns the labels of what an attempt makes on the engine.
func (e *Engine) Labels(attempt string) map[string]string {
	return map[string]string{labelNode: e.cfg.Node, labelAttempt: attempt}
}

// Name returns the name of an attempt's container.
func Name(attempt string) string { return "berth-" + attempt }

// Slice returns the systemd slice of an attempt's containers. A dash in the name of a
// slice is a level of the hierarchy.
func Slice(attempt string) string {
	return "berth-" + strings.NewReplacer("-", "", ".", "_").Replace(attempt) + ".slice"
}

// Close ends the connections to the engine. Containers go on.
func (e *Engine) Close() error { return e.api.Close() }
