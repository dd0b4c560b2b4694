package prepare

import (
	"cmp"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/node/executor/inputs"
)

// Mount is a directory of the machine that executions may ask for as a volume.
type Mount struct {
	Name     string
	Path     string // On the machine; absolute.
	ReadOnly bool
	Always   bool // Executions have it as /mnt/NAME without asking.
}

// Config has the settings of a Preparer. DataDir and Node are required; everything else has a
// default.
type Config struct {
	DataDir       string
	Node          compute.NodeID
	Python        string           // The interpreter; "" for the machine's python3.
	Packages      Packages         // How the packages are installed that executions ask for.
	SiteDirs      []string         // Added to the module path of executions, read-only.
	Mounts        []Mount          // Volumes of this node.
	Variables     inputs.Variables // Reads the variables of users; nil for none.
	Containers    Containers       // How containers are executed.
	Credentials   Credentials      // For registries of images; nil for none.
	Storage       Storage          // How buckets are mounted.
	Models        Models           // Starts engines of models; nil for none.
	Network       compute.Network  // NetworkNone: no execution on this node gets a network.
	ScratchMiB    int64            // Size of the scratch space; 0 for half the memory limit, in memory.
	ScratchMemory bool             // Scratch space is in memory, inside the memory limit.
	DenyCIDRs     []netip.Prefix   // The cluster's own addresses. See Preparer.Deny.
	StopGrace     time.Duration    // Between SIGTERM and SIGKILL; 0 for DefaultStopGrace.
	ProbeEvery    time.Duration    // Between readiness probes; 0 for supervise.ProbeEvery.
	HostCPUs      int              // 0 for all of the machine.
	HostMemoryMiB int64            // 0 for all of the machine.

	Blobs      inputs.Blobs // Nil: executions have no uploaded files, and their outputs are not kept.
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil for none.
	Now        func() time.Time      // nil for time.Now.
}

// DefaultStopGrace is the time between SIGTERM and SIGKILL.
const DefaultStopGrace = 10 * time.Second

// SetDefaults sets the defaults of unset fields and checks the rest.
func (c *Config) SetDefaults() error {
	if c.DataDir == "" || c.Node.IsZero() {
		return errors.New("no data directory or no node id")
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return err
	}
	c.DataDir = dir
	cpus, memoryMiB, err := machine()
	if err != nil {
		return err
	}
	c.HostCPUs = cmp.Or(c.HostCPUs, cpus)
	c.HostMemoryMiB = cmp.Or(c.HostMemoryMiB, memoryMiB)
	c.StopGrace = cmp.Or(c.StopGrace, DefaultStopGrace)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c.checkPaths()
}

// checkPaths refuses directories that cannot be mounted as configured.
func (c *Config) checkPaths() error {
	for _, dir := range c.SiteDirs {
		if info, err := os.Stat(dir); err != nil || !filepath.IsAbs(dir) || !info.IsDir() || dir == "/" {
			return compute.Errorf(compute.CodeInvalid, "site directory %q is not an absolute path of a directory", dir)
		}
	}
	for _, m := range c.Mounts {
		if _, err := os.Stat(m.Path); err != nil || !filepath.IsAbs(m.Path) || filepath.Clean(m.Path) == "/" {
			return compute.Errorf(compute.CodeInvalid, "mount %q: %q is not an absolute path that exists", m.Name, m.Path)
		}
		if m.Name == "" || m.Name == ".." || m.Name == "." || strings.ContainsAny(m.Name, "/\x00") {
			return compute.Errorf(compute.CodeInvalid, "mount name %q is not one plain name", m.Name)
		}
	}
	return nil
}
