//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// NewJoinToken is the body of POST /admin/join-tokens.
type NewJoinToken struct {
	Role string `json:"role" default:"\"server\"" enum:"server,worker" doc:"A server holds the state; a worker executes only."`
	TTL  int    `json:"ttl" default:"3600" min:"1" max:"3600" doc:"Seconds until the token dies."`
	Uses int    `json:"uses" default:"1" min:"1" max:"1000" doc:"How many nodes may join with it."`
}

// JoinToken is a token with which nodes join; its text is shown this once.
type JoinToken struct {
	Token     string          `json:"token"`
	ID        string          `json:"id"`
	Role      compute.Role    `json:"role"`
	Uses      int             `json:"uses"`
	ExpiresAt compute.Instant `json:"expires_at"`
}

// RemovalQuery are the parameters of DELETE /admin/nodes/{id}.
type RemovalQuery struct {
	Force bool `json:"force" default:"false" doc:"Remove it even if it may have the only copy of some blobs, which are lost then."`
}

// Node is one node as an operator sees it.
type Node struct {
	ID          compute.NodeID    `json:"id"`
	Name        string            `json:"name"`
	Role        compute.Role      `json:"role"`
	State       compute.NodeState `json:"state"`
	Drained     bool              `json:"drained"`
	API         string            `json:"api"`
	RPC         string            `json:"rpc"`
	Gossip      string            `json:"gossip"`
	Metrics     string            `json:"metrics"`
	Version     string            `json:"version"`
	Format      uint64            `json:"state_format" doc:"Newest format of the state that it can apply. Features of a newer version work once every server knows its format."`
	JoinedAt    compute.Instant   `json:"joined_at"`
	ChangedAt   compute.Instant   `json:"changed_at" doc:"When state last changed."`
	VCPU        float64           `json:"vcpu"`
	UsedVCPU    float64           `json:"used_vcpu"`
	MemoryMiB   int64             `json:"memory_mib"`
	UsedMemory  int64             `json:"used_memory_mib"`
	LiveWork    int               `json:"live_attempts"`
	Leaving     int               `json:"leaving_attempts" doc:"Those of them that were asked to end."`
	DrainBy     *compute.Instant  `json:"drain_by" doc:"When what still executes on it is ended; null where there is no such deadline."`
	GPUs        []GPU             `json:"gpus"`
	Gaps        []compute.Gap     `json:"sandbox_gaps,omitempty" doc:"Sandbox rules that its kernel cannot enforce, absent for none. cgroup_v1: buffers of sockets have a limit beside the memory limit. socket_memory_unlimited: they have none. no_landlock: mounts alone keep code from files."`
	ScratchMiB  int64             `json:"scratch_mib" doc:"The largest scratch space on disk that an execution may ask for there; 0 where scratch space is in memory."`
	Offers      []compute.Offer   `json:"offers" doc:"Volumes and prepared environments that executions may ask for there, as in volume:datasets, images that it has, and engines of models and of containers (engine:docker; engine:docker-trusted alone is for trusted organizations only)."`
	EngineFault string            `json:"engine_fault,omitempty" doc:"Why its Docker engine, which it offers, starts no containers at present; absent while the engine answers."`
	InventoryAt uint64            `json:"inventory_version"`
	ClockAhead  *int64            `json:"clock_ahead_ms" doc:"Milliseconds by which its clock is ahead of the cluster's time, below 0 when it is behind; null where the leader has not heard of it, and in answers about a single node. Over 500 ms the node warns, over 10 s is a fault."`
}

// GPU is one device as an operator sees it.
type GPU struct {
	ID         compute.GPUID  `json:"id"`
	Index      int            `json:"index"`
	Type       string         `json:"type"`
	Model      string         `json:"model"`
	VRAMMiB    int64          `json:"vram_mib"`
	Capability *string        `json:"compute_capability" doc:"CUDA compute capability, such as 8.9; null where unknown."`
	BFloat16   *bool          `json:"bfloat16" doc:"Whether it computes in bfloat16; null where unknown."`
	PCIBus     string         `json:"pci_bus"`
	MIG        string         `json:"mig" doc:"enabled, disabled, empty where there is no such mode, or the slice that it is, such as 1g_5gb."`
	Parent     *compute.GPUID `json:"parent" doc:"The GPU that this slice is part of."`
	Island     int            `json:"island" doc:"The same for GPUs of a node that NVLink joins or that share a PCIe switch; 0 for unknown."`
	Driver     string         `json:"driver"`
	Health     compute.Health `json:"health"`
	Simulated  bool           `json:"simulated"`
	UsedMilli  int            `json:"used_milli"`
}

// NewDrain is the body of POST /admin/nodes/{id}/drain. It may be left out.
type NewDrain struct {
	Deadline int `json:"deadline" default:"0" min:"0" max:"2592000" doc:"Seconds after which running executions are ended as an unbilled system failure. Those that are preemptible or have retries left are moved at once; those that have not started by then are queued again. 0 lets all finish."`
}

// Nodes answers /admin/nodes.
type Nodes struct {
	Nodes []Node `json:"nodes"`
	Count int    `json:"count"`
}

// Peer is one member of the Raft configuration.
type Peer struct {
	ID      compute.NodeID `json:"id"`
	Address string         `json:"address"`
	Voter   bool           `json:"voter"`
	Leader  bool           `json:"leader"`

	Diverged *bool `json:"diverged" doc:"Its state is not that of the majority of the voters, as the leader last compared; true of all where no majority agrees. Null while the leader cannot be asked."`
}

// Peers answers /admin/raft/peers.
type Peers struct {
	Peers []Peer `json:"peers"`
	Count int    `json:"count"`
}

// NewTransfer is the body of POST /admin/raft/transfer. It may be left out.
type NewTransfer struct {
	To string `json:"to" maxlen:"64" doc:"Identifier of the next leader; the most up-to-date server when absent."`
}

// Transfer answers POST /admin/raft/transfer.
type Transfer struct {
	Leader compute.NodeID `json:"leader"`
	Name   string         `json:"name"`
}
