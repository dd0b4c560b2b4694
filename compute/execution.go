package compute

import (
	"slices"
	"time"
)

// Network is the network access of an execution.
type Network uint8

// The networks. Values are written to disk: append only.
const (
	NetworkEgress Network = iota // Everything except private and cluster addresses.
	NetworkNone                  // Nothing.
)

var networkNames = names{"egress", "none"}

// String returns the network as clients spell it.
func (n Network) String() string { return networkNames.text(uint8(n)) }

// MarshalText returns what String returns.
func (n Network) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText accepts what String returns.
func (n *Network) UnmarshalText(text []byte) error {
	v, err := networkNames.value("network", text)
	*n = Network(v)
	return err
}

// Stop is how a live execution was asked to end.
type Stop uint8

// The ways to stop. Values are written to disk: append only.
const (
	StopNone     Stop = iota
	StopGraceful      // SIGTERM, then SIGKILL after the grace; ends as cancelled.
	StopHard          // SIGKILL; ends as aborted.
)

// Execution is the record of one execution, live or ended.
type Execution struct {
	ID     ExecutionID `cbor:"1,keyasint"`
	Org    OrgID       `cbor:"2,keyasint"`
	User   UserID      `cbor:"3,keyasint"`
	Key    KeyID       `cbor:"4,keyasint,omitempty"` // Zero when submitted with a JWT.
	Parent ExecutionID `cbor:"5,keyasint,omitempty"` // Set on sub-executions.
	Kind   Kind        `cbor:"6,keyasint,omitempty"`

	Status Status `cbor:"7,keyasint,omitempty"`
	Reason Reason `cbor:"8,keyasint,omitempty"` // Why it waits or ended.
	Detail string `cbor:"9,keyasint,omitempty"` // The same for people; at most 512 bytes.

	Profile  string    `cbor:"10,keyasint"` // Canonical; "gpu_selection" for parents.
	Request  Request   `cbor:"11,keyasint"`
	Bundle   BundleRef `cbor:"12,keyasint"`
	FileName string    `cbor:"13,keyasint,omitempty"`
	Imports  []string  `cbor:"14,keyasint,omitempty"` // Paths of its import files, as far as RecordedPaths keeps them.
	JobType  string    `cbor:"15,keyasint,omitempty"`

	Timeout         time.Duration `cbor:"16,keyasint"`
	DisconnectGrace time.Duration `cbor:"17,keyasint"`
	Priority        int           `cbor:"18,keyasint,omitempty"` // 0 to 100, higher first.
	Network         Network       `cbor:"19,keyasint,omitempty"`
	Tags            []string      `cbor:"20,keyasint,omitempty"`
	CallbackURLs    []string      `cbor:"21,keyasint,omitempty"`
	MaxCredits      Credits       `cbor:"22,keyasint,omitempty"` // 0 for no ceiling.

	Price  Price   `cbor:"23,keyasint,omitempty"` // Per second, fixed at submit.
	Held   Credits `cbor:"24,keyasint,omitempty"` // Set aside now.
	Billed Credits `cbor:"25,keyasint,omitempty"` // Charged; settled when terminal.

	Epoch uint64 `cbor:"26,keyasint,omitempty"` // Number of its newest attempt; 0 before the first.
	Stop  Stop   `cbor:"27,keyasint,omitempty"`

	SubmitIndex uint64  `cbor:"28,keyasint"` // Raft index of the submit, which orders the history.
	CreatedAt   Instant `cbor:"29,keyasint"` // The submit was committed.
	PlacedAt    Instant `cbor:"30,keyasint,omitempty"`
	ExecletAt   Instant `cbor:"31,keyasint,omitempty"` // The attempt began on its node.
	StartedAt   Instant `cbor:"32,keyasint,omitempty"` // The user's process started.
	EndedAt     Instant `cbor:"33,keyasint,omitempty"` // It exited.
	FinishedAt  Instant `cbor:"34,keyasint,omitempty"` // The terminal entry was committed.

	Ran      bool          `cbor:"35,keyasint,omitempty"` // The user's process ran, so ExitCode is valid.
	ExitCode int           `cbor:"36,keyasint,omitempty"` // 128+n when signal n ended it.
	Duration time.Duration `cbor:"37,keyasint,omitempty"` // Wall time of the user's process, from its node's journal.
	Usage    Usage         `cbor:"38,keyasint,omitempty"`

	Selection *Selection `cbor:"39,keyasint,omitempty"` // Parents only.
	Deleted   bool       `cbor:"40,keyasint,omitempty"` // Only its billing row is left.

	StopGrace time.Duration `cbor:"41,keyasint,omitempty"` // Time for its code to end after Timeout; fixed at submit.

	Estimate  *Estimated    `cbor:"42,keyasint,omitempty"` // When it is expected to start, while it waits.
	Repeat    int           `cbor:"43,keyasint,omitempty"` // Number of the run of its GPU type in a selection, from 1.
	Predicted time.Duration `cbor:"44,keyasint,omitempty"` // After an early stop: the least its code would have taken.

	Preemptible bool `cbor:"45,keyasint,omitempty"` // May be preempted by work of a higher priority and requeued.

	MaxRetries int      `cbor:"46,keyasint,omitempty"` // Retries allowed after system failures.
	Retries    int      `cbor:"47,keyasint,omitempty"` // Retries so far.
	Avoid      []NodeID `cbor:"49,keyasint,omitempty"` // Nodes on which its code could not be started, in this order.

	// Owed is the wall time of its attempts that its own organization's work
	// preempted. It is charged with the last attempt.
	Owed time.Duration `cbor:"50,keyasint,omitempty"`

	ImportFiles int `cbor:"51,keyasint,omitempty"` // Number of its import files; 0 in older records.

	// GPUTypes are the GPU types of which it gets one, with their prices, in the
	// order of its request. It has none if its profile names the type.
	GPUTypes []AcceptedType `cbor:"52,keyasint,omitempty"`

	// MinVRAMMiB is the least GPU memory that it asked for, of each device or
	// share; 0 for any.
	MinVRAMMiB int64 `cbor:"53,keyasint,omitempty"`

	Files   *Files   `cbor:"54,keyasint,omitempty"` // Nil without an uploaded bundle.
	Name    string   `cbor:"55,keyasint,omitempty"` // The name that its user chose; need not be unique.
	Outputs *Outputs `cbor:"59,keyasint,omitempty"` // Nil if it left none.

	Volumes       []Volume `cbor:"57,keyasint,omitempty"` // Directories of the node that it asked for.
	ScratchMiB    int64    `cbor:"58,keyasint,omitempty"` // On disk, that it asked for; 0 for the node's default.
	ScratchMemory bool     `cbor:"60,keyasint,omitempty"` // Its scratch space is in memory, inside its memory limit.

	Environment  EnvironmentRef `cbor:"70,keyasint,omitzero"`  // The named environment that it executes in.
	ProviderCost Credits        `cbor:"71,keyasint,omitempty"` // Its cost to the operator; 0 also where no cost is known.

	MinCapability int `cbor:"61,keyasint,omitempty"` // Least compute capability that it asked for, in tenths; 0 for any.

	Service *Service `cbor:"65,keyasint,omitempty"` // Parents of services only.
	Serving *Serving `cbor:"66,keyasint,omitempty"` // Services and their replicas.
	Ready   bool     `cbor:"67,keyasint,omitempty"` // A replica that answers its probe.
	ReadyAt Instant  `cbor:"68,keyasint,omitempty"` // When Ready last changed.
	// CreditsEnd is when a replica's credits are expected to end, once that is near.
	CreditsEnd Instant `cbor:"69,keyasint,omitempty"`

	Container  *Container  `cbor:"74,keyasint,omitempty"` // Executions in containers only.
	Inference  *Inference  `cbor:"75,keyasint,omitempty"` // Deployments of models and their replicas only.
	Deployment *Deployment `cbor:"76,keyasint,omitempty"` // Parents of deployments only.
	// Series has the blobs with the metrics of ended attempts. See AddSeries.
	Series []byte `cbor:"72,keyasint,omitempty"`
	// Storage is how its code sees the bucket of the organization; nil if it does not.
	Storage *StorageMount `cbor:"85,keyasint,omitempty"`
	// OutputsPrefix is the folder of the organization's bucket that gets a copy of its
	// outputs, without a slash at the end; "" for none.
	OutputsPrefix string `cbor:"86,keyasint,omitempty"`
}

// PaidGrace returns the time for the code of e to end after SIGTERM: StopGrace, or the
// time that the ceiling of credits pays for after the time limit if that is less. It is
// at least a millisecond, and 0 in records that have no StopGrace.
func (e *Execution) PaidGrace() time.Duration {
	if e.MaxCredits == 0 || e.StopGrace == 0 {
		return e.StopGrace
	}
	paid := e.Price.Buys(e.MaxCredits, e.Owed+e.Timeout+e.StopGrace) - e.Owed - e.Timeout
	return min(max(paid, time.Millisecond), e.StopGrace)
}

// ImportCount returns the number of import files of e.
func (e *Execution) ImportCount() int { return max(e.ImportFiles, len(e.Imports)) }

// Avoids reports whether e should not be placed on a node because its code
// could not be started there.
func (e *Execution) Avoids(node NodeID) bool { return slices.Contains(e.Avoid, node) }

// Usage is the resource usage of an attempt, as its node measured it.
type Usage struct {
	CPUTime        time.Duration `cbor:"1,keyasint,omitempty"`
	PeakMemoryMiB  int64         `cbor:"2,keyasint,omitempty"`
	GPUUtilPercent int           `cbor:"3,keyasint,omitempty"` // Mean (simulated: of the CPU quota); negative for unknown.
	GPUMemoryMiB   int64         `cbor:"4,keyasint,omitempty"` // Peak; negative for unknown.
	OutputBytes    int64         `cbor:"5,keyasint,omitempty"`
	OutputLines    int64         `cbor:"6,keyasint,omitempty"`
	PowerMilliW    int64         `cbor:"7,keyasint,omitempty"`  // Mean of all its GPUs together; 0 for unknown.
	EnergyMilliJ   int64         `cbor:"8,keyasint,omitempty"`  // From counters, else power times time; 0 for unknown.
	Simulated      bool          `cbor:"9,keyasint,omitempty"`  // The GPU values are simulated.
	Samples        []UsageSample `cbor:"10,keyasint,omitempty"` // Only sub-executions have them; at most MaxUsageSamples.
}

// GPUUnknown is a GPU utilization or amount of GPU memory that was not
// measured.
const GPUUnknown = -1

// Measured reports whether the GPUs were measured. They were not if the attempt
// ended while its node's process was away: then no value is set. An idle GPU
// that was measured still takes power.
func (u *Usage) Measured() bool {
	return u.Simulated || u.GPUUtilPercent > 0 || u.GPUMemoryMiB > 0 || u.PowerMilliW > 0 || len(u.Samples) > 0
}

// MaxUsageSamples is how many GPU samples an execution keeps.
const MaxUsageSamples = 16

// UsageSample is one sample of all GPUs of an attempt together. A value that
// they do not report is negative.
type UsageSample struct {
	AtMs        int64 `cbor:"1,keyasint"` // Since the code started.
	UtilPercent int   `cbor:"2,keyasint"` // Mean.
	MemoryMiB   int64 `cbor:"3,keyasint"` // Sum.
	PowerWatt   int   `cbor:"4,keyasint"` // Sum.
}

// Attempt is one try to execute an execution on one node. The state assigns its
// epoch, which rises with each attempt of the execution.
type Attempt struct {
	Execution  ExecutionID   `cbor:"1,keyasint"`
	Epoch      uint64        `cbor:"2,keyasint"`
	Node       NodeID        `cbor:"3,keyasint"`
	GPUs       []GPUShare    `cbor:"4,keyasint,omitempty"`
	PlacedAt   Instant       `cbor:"5,keyasint"`
	PlaceIndex uint64        `cbor:"6,keyasint"`
	Started    bool          `cbor:"7,keyasint,omitempty"` // StartAttempt was committed.
	Ended      bool          `cbor:"8,keyasint,omitempty"`
	Status     Status        `cbor:"9,keyasint,omitempty"` // How it ended.
	Reason     Reason        `cbor:"10,keyasint,omitempty"`
	EndedAt    Instant       `cbor:"11,keyasint,omitempty"`
	Placement  Placement     `cbor:"12,keyasint,omitzero"`  // Why it was placed there.
	StartedAt  Instant       `cbor:"13,keyasint,omitempty"` // When StartAttempt was committed, by the state's clock.
	PreemptAt  Instant       `cbor:"14,keyasint,omitempty"` // When it was preempted; zero if it was not.
	Notice     time.Duration `cbor:"15,keyasint,omitempty"` // Time between the notice of a preemption and SIGTERM.
	ForOwn     bool          `cbor:"16,keyasint,omitempty"` // It was preempted for work of its own organization.
}

// GPUShare is the part of one GPU that an attempt holds. The state sets memory
// and isolation from the device at the time of placement. A plan leaves them
// out.
type GPUShare struct {
	GPU       GPUID     `cbor:"1,keyasint"`
	Milli     int       `cbor:"2,keyasint"`
	VRAMMiB   int64     `cbor:"3,keyasint,omitempty"`
	Isolation Isolation `cbor:"4,keyasint,omitempty"`
}

// IsolationOf returns the weakest isolation among the shares.
func IsolationOf(shares []GPUShare) Isolation {
	weakest := IsolationNone
	for _, share := range shares {
		weakest = weakest.Weaker(share.Isolation)
	}
	return weakest
}

// Work is a node's task for one attempt: the attempt, the current execution
// (Stop is set when it has to end) and descriptions of the GPUs it holds.
type Work struct {
	Attempt   *Attempt
	Execution *Execution
	GPUs      []GPU
}

// AttemptStart is the report of a node that the user's process started.
type AttemptStart struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Epoch     uint64      `cbor:"2,keyasint"`
	ExecletAt Instant     `cbor:"3,keyasint"`
	StartedAt Instant     `cbor:"4,keyasint"`
}

// Outcome is the report of a node on how an attempt ended.
type Outcome struct {
	Execution ExecutionID   `cbor:"1,keyasint"`
	Epoch     uint64        `cbor:"2,keyasint"`
	Status    Status        `cbor:"3,keyasint"` // Terminal.
	Reason    Reason        `cbor:"4,keyasint,omitempty"`
	Detail    string        `cbor:"5,keyasint,omitempty"`
	Ran       bool          `cbor:"6,keyasint,omitempty"`
	ExitCode  int           `cbor:"7,keyasint,omitempty"`
	ExecletAt Instant       `cbor:"8,keyasint,omitempty"`
	StartedAt Instant       `cbor:"9,keyasint,omitempty"`
	EndedAt   Instant       `cbor:"10,keyasint,omitempty"`
	Duration  time.Duration `cbor:"11,keyasint,omitempty"`
	Usage     Usage         `cbor:"12,keyasint,omitempty"`
	Outputs   *Outputs      `cbor:"13,keyasint,omitempty"`
	Digest    string        `cbor:"14,keyasint,omitempty"` // Digest of the executed image.
	Series    *Hash         `cbor:"24,keyasint,omitempty"` // The blob with the attempt's metrics; nil for none.
}
