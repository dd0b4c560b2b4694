package supervise

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"berth/compute"
	"berth/node/executor/cgroup"
	"berth/node/executor/journal"
	"berth/node/executor/sandbox"
)

// Command is the argument by which package early calls Main.
const Command = "supervise"

// The files in an attempt's directory.
const (
	SpecFile    = "spec"
	JournalFile = "journal"
	PIDFile     = "pid"
	OutputFile  = "out.seg"
	WorkFile    = "work"    // The files of the code, by sandbox.WriteWork.
	InputFile   = "input"   // The standard input of the code, if it has one.
	ControlFile = "control" // The socket for Dial.

	OutputsFile    = "outputs"         // The output files, as a work stream. Its summary is written behind it.
	OutputsSummary = "outputs.summary" // Missing while the collection goes on.
	ErrorFile      = "errors"          // The supervisor's standard error.
	NoticeDir      = "notice"          // Mounted in the sandbox of code that may be preempted or drained.
	NoticeFile     = "preempt"         // In NoticeDir, once the attempt is being preempted.
)

// Descriptors that a supervisor finds open. Those from FDConn on are an attempt's. All but FDStorage, after
// which no other attempt follows, stay open until it has ended, so that nothing else gets their numbers.
const (
	FDHand    = 3 // The supervisor's end of the connection of its Process.
	FDMounts  = 4 // The mount namespace of sandbox.NewBareMounts, if the node could make it.
	FDConn    = 5 // The supervisor's end of the first Conn.
	FDSlot    = 6 // A file lock that ends with the attempt.
	FDNetwork = 7 // The network namespace; with Spec.JoinNetwork.
	FDScratch = 8 // A detached mount for scratch space; with Spec.Sandbox.ScratchDisk.
	FDMount   = 9 // A detached mount for Spec.MountAt, unless that is empty.

	FDVariables = 10 // A file in memory with the user's variables as JSON; with Spec.Variables.
	FDStorage   = 11 // The socket to the process of Spec.Storage, which ends when it is closed.
)

// Spec is everything that a supervisor knows about its attempt.
type Spec struct {
	Execution  compute.ExecutionID `json:"execution"`
	Epoch      uint64              `json:"epoch"`
	PlaceIndex uint64              `json:"place_index"`
	Slot       int                 `json:"slot"`
	GPUs       int                 `json:"gpus"` // How many GPUs it holds.

	Group     string `json:"group"`      // Name of its cgroup.
	MemoryMiB int64  `json:"memory_mib"` // Limit.
	CPUMilli  int64  `json:"cpu_milli"`  // Limit, in thousandths of a core.
	Pids      int64  `json:"pids"`       // Limit.
	Simulated bool   `json:"simulated"`  // Its GPUs are simulated: their utilization is that of the CPU quota.

	// Cgroups are those of the machine. Nil makes the supervisor look for them in the list of all mounts.
	Cgroups *cgroup.Host `json:"cgroups,omitempty"`

	Timeout         time.Duration `json:"timeout_ns"`
	StopGrace       time.Duration `json:"stop_grace_ns"`
	DisconnectGrace time.Duration `json:"disconnect_grace_ns"` // 0 for none.
	ContactAt       time.Duration `json:"contact_at_ns"`       // Boottime, when the spec was written.

	Unpack      time.Duration `json:"unpack_ns"` // Added to the time in which the code must start, for many files.
	JoinNetwork bool          `json:"join_network"`
	MountAt     string        `json:"mount_at,omitempty"` // A directory of the sandbox.
	Variables   bool          `json:"variables"`          // The user keeps variables: they are in FDVariables.
	Notes       []string      `json:"notes"`              // Written to the output before the code starts.
	Storage     *sandbox.Bind `json:"storage,omitempty"`  // The mount of the bucket, for the code to have.
	Serving     *Serving      `json:"serving,omitempty"`  // The port of the code, if it serves one.

	// Container is set for code that executes in containers. They use only the environment
	// and the scratch space of Sandbox.
	Container *Container   `json:"container,omitempty"`
	Sandbox   sandbox.Spec `json:"sandbox"`
}

// Container has the settings of containers beside the limits and variables of
// their attempt.
type Container struct {
	Engine   string            `json:"engine"`            // Address of the engine, as in unix:///run/docker.sock.
	Name     string            `json:"name"`              // Unique on the engine.
	Labels   map[string]string `json:"labels"`            // The node finds what a killed supervisor leaves by them.
	Slice    string            `json:"slice,omitempty"`   // Slice of systemd; "" where the engine manages cgroups itself.
	Runtime  string            `json:"runtime,omitempty"` // The engine's runtime; "" for its default.
	Network  string            `json:"network"`           // Name of the network; "none" for none.
	GPUs     []string          `json:"gpus,omitempty"`    // Devices by UUID.
	Device   string            `json:"device,omitempty"`  // Device of the scratch space; "" for scratch space in memory.
	Volumes  []sandbox.Bind    `json:"volumes,omitempty"`
	TmpMiB   int64             `json:"tmp_mib"`           // Size of each directory in memory.
	Seccomp  string            `json:"seccomp,omitempty"` // Profile in the engine's format; "" for the engine's own.
	MaxFiles int64             `json:"max_files"`         // Open files of a process.
	Image    *ContainerImage   `json:"image,omitempty"`   // The program of one container,
	Compose  *ContainerCompose `json:"compose,omitempty"` // or what Docker Compose executes.
}

// ContainerCompose is the Compose file for Docker Compose, with its images and
// volumes.
type ContainerCompose struct {
	Program     string                    `json:"program"` // Docker Compose.
	Text        string                    `json:"text"`    // A Compose file that was checked.
	Interpolate map[string]string         `json:"interpolate,omitempty"`
	Images      map[string]ContainerImage `json:"images"`            // By whole name.
	Devices     []string                  `json:"devices,omitempty"` // A loop device for each volume.
	Internal    []ContainerNetwork        `json:"internal,omitempty"`
}

// ContainerNetwork is a network without a way out, which Docker Compose makes.
type ContainerNetwork struct {
	Name   string            `json:"name"`
	Link   string            `json:"link"` // Name of its bridge on the machine.
	Subnet string            `json:"subnet"`
	Labels map[string]string `json:"labels"`
}

// ContainerImage is the program of one container.
type ContainerImage struct {
	ID       string   `json:"id"`               // Id of the image on the engine.
	Digest   string   `json:"digest,omitempty"` // Digest of the image in its registry.
	Command  []string `json:"command,omitempty"`
	User     string   `json:"user,omitempty"`
	WorkDir  string   `json:"work_dir,omitempty"` // "" for that of the image.
	Home     bool     `json:"home"`               // The image sets no HOME.
	Volumes  []string `json:"volumes,omitempty"`  // Directories that the image declares as volumes.
	StopWith string   `json:"stop_with,omitempty"`
}

// Write writes the spec's file in dir atomically.
func (s *Spec) Write(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write spec: %w", err)
	}
	name := dir + "/" + SpecFile
	file, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write spec: %w", err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("write spec: %w", err)
	}
	return nil
}

// ReadSpec returns the spec of the attempt in dir.
func ReadSpec(dir string) (*Spec, error) {
	data, err := os.ReadFile(dir + "/" + SpecFile)
	if err != nil {
		return nil, fmt.Errorf("read spec: %w", err)
	}
	s := new(Spec)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read spec: %w", err)
	}
	return s, nil
}

// outcome returns an outcome with the fields that are known before the end.
func (s *Spec) outcome(state journal.State) compute.Outcome {
	outcome := compute.Outcome{
		Execution: s.Execution, Epoch: s.Epoch,
		ExecletAt: state.ExecletAt, StartedAt: state.StartedAt,
	}
	if s.Container != nil && s.Container.Image != nil {
		outcome.Digest = cmp.Or(s.Container.Image.Digest, s.Container.Image.ID)
	}
	return outcome
}
