package compute

// Status is the state of an execution in its life cycle:
//
//	pending -> queued -> starting -> running -> one of the terminal ones
//
// A parent is pending before its children exist and running while they run. A
// terminal status never changes.
type Status uint8

// The statuses. Values are written to disk: append only.
const (
	StatusPending       Status = iota // A parent before its children exist; a sub-execution before its turn.
	StatusQueued                      // Accepted, waiting for placement.
	StatusStarting                    // Placed; its node prepares it.
	StatusRunning                     // The user's process runs.
	StatusCompleted                   // Exit code 0.
	StatusFailed                      // The user's code failed: exit code, timeout, out of memory.
	StatusSystemFailure               // A failure of Berth; never billed.
	StatusAborted                     // Hard stop on request.
	StatusCancelled                   // Graceful stop on request.
)

var statusNames = names{
	"pending", "queued", "starting", "running",
	"completed", "failed", "system_failure", "aborted", "cancelled",
}

// Statuses is the number of statuses.
const Statuses = int(StatusCancelled) + 1

// Terminal reports whether s is final.
func (s Status) Terminal() bool { return s >= StatusCompleted }

// String returns the status as clients read it.
func (s Status) String() string { return statusNames.text(uint8(s)) }

// MarshalText returns what String returns.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText accepts what String returns.
func (s *Status) UnmarshalText(text []byte) error {
	v, err := statusNames.value("status", text)
	*s = Status(v)
	return err
}

// Kind is the kind of work that an execution executes.
type Kind uint8

// The kinds. Values are written to disk: append only.
const (
	KindPython Kind = iota
	KindDocker
	KindCompose
	KindSelection    // The parent of a GPU selection.
	KindSubSelection // One GPU type's run of a GPU selection.
	KindService      // The parent of a service's replicas.
	KindReplica      // One replica of a service.
)

var kindNames = names{"python", "docker", "compose", "gpu_selection", "gpu_selection_sub", "service", "service_replica"}

// String returns the kind as clients read it in execution_type.
func (k Kind) String() string { return kindNames.text(uint8(k)) }

// MarshalText returns what String returns.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText accepts what String returns.
func (k *Kind) UnmarshalText(text []byte) error {
	v, err := kindNames.value("kind", text)
	*k = Kind(v)
	return err
}
