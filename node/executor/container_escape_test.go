package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/docker/dockertest"
	"berth/testsize"
)

// containerEscape is a group of things that succeed once the same is lifted.
type containerEscape struct {
	lift    string
	attacks []string
}

// containerEscapes are attacks that a container must stop. They are grouped by the limit
// that is lifted in the container in which they succeed: one without our limits in the
// namespaces of the machine, or one in the engine's own network. The short form tries the
// first groups.
var containerEscapes = []containerEscape{
	{"files", []string{
		"mount", "remount", "cgroupmount", "fsopen", "opentree", "umount", "pivot", "chroot", "mknod", "disk", "memory", "handle",
		"namehandle", "trusted", "quota", "fanotify", "sync", "chown", "mkdir $CGROUP/berth-escape", "mkdir /berth-escape",
		"append /etc/passwd", "write /x 0", "append /proc/sys/kernel/core_pattern", "append /proc/sysrq-trigger",
		"append /proc/sys/vm/drop_caches", "append /proc/sys/kernel/hostname", "append /proc/sys/net/ipv4/ip_forward",
		"append /proc/sys/kernel/modprobe", "append /proc/sys/vm/overcommit_memory", "append /proc/sys/kernel/panic", "content /proc/keys", "content /proc/timer_list", "list /sys/firmware", "open /dev/kmsg",
		"open /dev/loop-control", "unix /var/run/docker.sock", "append /proc/irq/default_smp_affinity",
	}},
	{"kernel", []string{
		"keyring", "keyctl", "bpf", "perf", "userfaultfd", "iouring", "module", "modulefile", "unmodule", "kexec", "reboot", "swapon",
		"swapoff", "acct", "dmesg", "clock", "timex", "hostname", "domain", "personality", "clone3", "newuser", "unshare", "newnet",
		"setns /proc/self/ns/uts", "ioports", "numa",
	}},
	{"processes", []string{
		"kill $PID", "trace", "ptrace $PID", "readmem", "writemem", "pidfd $PID", "kcmp $PID", "open /proc/$PID/root", "list /proc/$PID/fd",
		"content /proc/$PID/environ", "setuid 1234", "setgid 1234", "groups", "status CapBnd: 0000000000000000", "status NoNewPrivs: 1",
		"status Seccomp: 2", "nice", "ionice",
	}},
	{"network", []string{
		"rawsocket", "raw6", "packet", "vsock", "alg", "key", "xdp", "tipc", "netadmin", "buffer", "dial 127.0.0.1:$PORT", "abstract $ABSTRACT",
		"setns /proc/$PID/ns/net",
	}},
	{"bridge", []string{"gateway $PORT", "dial $HOST:$PORT", "dial $NEIGHBOUR:8080"}},
	{"metadata", []string{"dial " + metadata + ":8080"}},
	{"limits", []string{
		"files 5000", "alloc 400", "fill /work/big 200", "fill /tmp/big 300", "fill /dev/shm/big 200", "lock 80", "corelimit",
	}},
	{"threads", []string{"threads 5000"}},
}

const (
	shortEscapes     = 6  // Groups that the short form tries: all but those that use resources up.
	leastEscapes     = 85 // How many attacks must have been tried.
	leastEscapesLong = 95
)

// metadata is the address at which clouds hand out credentials.
const metadata = "169.254.169.254"

// TestContainersCannotEscape tries everything in containers of executions, and in others
// that lack our limits: there each of them succeeds, so it is a real one.
func TestContainersCannotEscape(t *testing.T) {
	n := newDockerNode(t, func(c *executor.Config) { c.Network = compute.NetworkEgress })
	groups := containerEscapes[:testsize.Pick(shortEscapes, len(containerEscapes))]
	targets := escapeTargets(t)
	tried := 0
	for _, group := range groups {
		t.Run(group.lift, func(t *testing.T) {
			n := n.as(t)
			command := []string{"each"}
			var attacks []string
			for _, attack := range group.attacks {
				attack = targets.Replace(attack)
				words := strings.Fields(attack)
				if strings.HasPrefix(words[len(words)-1], "/proc/") && !exists(words[len(words)-1]) {
					t.Log("this kernel has none: " + attack)
					continue
				}
				attacks, command = append(attacks, attack), append(append(command, words...), ";")
			}
			tried += len(attacks)
			id := n.place(n.newContainer(command, func(w *compute.Work) {
				w.Execution.Network, w.Execution.Request.MemoryMiB = compute.NetworkEgress, 256
			}))
			outcome := n.end(id)
			inside, outside := n.output(id), unlimited(t, group.lift, command)
			full := group.lift == "threads" && strings.Contains(inside, "newosproc") // The attack gets no thread either.
			if outcome.Status != compute.StatusCompleted && !full {
				t.Fatalf("ended as %v (%s): %s", outcome.Status, outcome.Detail, inside)
			}
			for _, attack := range attacks {
				if !strings.Contains(inside, attack+": failed") && !full {
					t.Errorf("%s is not refused:\n%s", attack, inside)
				}
				if !strings.Contains(outside, attack+": succeeded") {
					t.Errorf("%s fails without limits too:\n%s", attack, outside)
				}
			}
		})
	}
	if least := testsize.Pick(leastEscapes, leastEscapesLong); tried < least {
		t.Errorf("only %d attacks were tried", tried)
	}
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// escapeTargets makes the targets of the attacks, and returns a replacer for their
// placeholders.
func escapeTargets(t *testing.T) *strings.Replacer {
	t.Helper()
	var all net.ListenConfig
	port, err := all.Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	abstract := fmt.Sprintf("berth-container-%d", os.Getpid())
	unix, err := all.Listen(t.Context(), "unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close() })
	cgroup := "/sys/fs/cgroup"
	if exists(filepath.Join(cgroup, "memory")) {
		cgroup += "/memory" // Version 1.
	}
	return strings.NewReplacer(
		"$PID", fmt.Sprint(os.Getpid()), "$ABSTRACT", abstract, "$CGROUP", cgroup,
		"$PORT", fmt.Sprint(port.Addr().(*net.TCPAddr).Port), "$HOST", machineAddress(t), "$NEIGHBOUR", neighbour(t),
	)
}

// machineAddress returns an address of this machine beside those of its loopback.
func machineAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range all {
		prefix, err := netip.ParsePrefix(known.String())
		if address := prefix.Addr(); err == nil && address.Is4() && address.IsGlobalUnicast() {
			return address.String()
		}
	}
	t.Fatal("this machine has no address")
	return ""
}

// neighbour starts a container at the metadata address and one in the engine's own network,
// whose address it returns.
func neighbour(t *testing.T) string {
	t.Helper()
	api := dockertest.Client(t)
	_, err := api.NetworkCreate(t.Context(), metadataNetwork, client.NetworkCreateOptions{
		Driver: "bridge", IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: netip.MustParsePrefix(metadata + "/24").Masked()}}},
	})
	if err != nil && !strings.Contains(err.Error(), "already exists") { // A test that was killed left it.
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := api.NetworkRemove(context.Background(), metadataNetwork, client.NetworkRemoveOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	start(t, &container.HostConfig{NetworkMode: metadataNetwork}, metadataEndpoint(metadata), "serve", "8080")
	id := start(t, &container.HostConfig{}, nil, "serve", "8080")
	found, err := api.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Container.NetworkSettings.Networks["bridge"].IPAddress.String()
}

const metadataNetwork = "berth-test-metadata"

// metadataEndpoint returns the place of a container in the network of the metadata address.
func metadataEndpoint(address string) *network.NetworkingConfig {
	endpoint := &network.EndpointSettings{}
	if address != "" {
		endpoint.IPAMConfig = &network.EndpointIPAMConfig{IPv4Address: netip.MustParseAddr(address)}
	}
	return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{metadataNetwork: endpoint}}
}

// start starts a container of the probe image that is removed with the test.
func start(t *testing.T, host *container.HostConfig, at *network.NetworkingConfig, command ...string) string {
	t.Helper()
	api := dockertest.Client(t)
	made, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Config:     &container.Config{Image: dockertest.Image, Cmd: command, WorkingDir: "/work"},
		HostConfig: host, NetworkingConfig: at,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := api.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil {
			t.Error(err)
		}
	})
	if _, err := api.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// capabilities returns the capabilities that a container can have here: an engine gives no
// others than this process has.
func capabilities(t *testing.T) (names []string) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "CapBnd:")
	var bounding uint64
	if _, err := fmt.Sscanf(strings.TrimSpace(rest), "%x", &bounding); err != nil {
		t.Fatal(err)
	}
	for i, name := range strings.Fields("CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE " +
		"NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT " +
		"SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE " +
		"MAC_ADMIN SYSLOG") {
		if bounding&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// unlimited returns the output of a command in a container without our limits.
func unlimited(t *testing.T, lift string, command []string) string {
	t.Helper()
	api := dockertest.Client(t)
	host := &container.HostConfig{
		CapAdd: capabilities(t), SecurityOpt: []string{"seccomp=unconfined", "apparmor=unconfined"},
		NetworkMode: "host", PidMode: "host", IpcMode: "host", CgroupnsMode: "host",
		Tmpfs: map[string]string{"/tmp": "dev"}, MaskedPaths: []string{}, ReadonlyPaths: []string{},
		Binds:     []string{"/var/run/docker.sock:/var/run/docker.sock", "/sys/fs/cgroup:/sys/fs/cgroup"},
		Resources: container.Resources{DeviceCgroupRules: []string{"a *:* rwm"}},
	}
	for _, device := range []string{"/dev/kmsg", "/dev/loop-control"} {
		host.Devices = append(host.Devices, container.DeviceMapping{
			PathOnHost: device, PathInContainer: device, CgroupPermissions: "rwm",
		})
	}
	var at *network.NetworkingConfig
	switch lift {
	case "bridge":
		host = &container.HostConfig{}
	case "metadata":
		host, at = &container.HostConfig{NetworkMode: metadataNetwork}, metadataEndpoint("")
	case "kernel": // In the machine's own it would rename the machine.
		host.NetworkMode = "none"
	case "limits":
		host.Tmpfs = map[string]string{"/tmp": "size=400m"}
	}
	id := start(t, host, at, command...)
	ended := api.ContainerWait(t.Context(), id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-ended.Result:
	case err := <-ended.Error:
		t.Fatal(err)
	}
	logs, err := api.ContainerLogs(t.Context(), id, client.ContainerLogsOptions{ShowStdout: true})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, io.Discard, logs); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
