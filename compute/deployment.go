package compute

import "time"

// Limits of deployments of models.
const (
	MaxModelName   = 256 // Bytes.
	MaxEngineName  = 64
	MaxEngineArgs  = 64            // Arguments that a deployment adds to its engine's,
	MaxEngineArg   = 256           // and bytes of one of them.
	MaxModelToken  = 4 << 10       // Bytes of the sealed token.
	MaxStarts      = 100           // The largest bound of starts in a row that fail.
	MaxTargetRPS   = 1_000_000_000 // In thousandths.
	MaxTargetDelay = time.Hour
)

// Inference is the part of a record that only deployments of models and their replicas
// have: which engine loads which model.
type Inference struct {
	Engine string   `cbor:"1,keyasint"`           // Name of an engine in the node's configuration.
	Model  string   `cbor:"2,keyasint"`           // As on the hub of models: owner/name, with @revision or :file if asked.
	Args   []string `cbor:"3,keyasint,omitempty"` // Added to the engine's own.

	// Token is for the hub, sealed with the organization's data key of this number.
	Token []byte `cbor:"4,keyasint,omitempty"`
	Key   uint64 `cbor:"5,keyasint,omitempty"`
}

// TokenContext returns the context that the token of a deployment is sealed for. It
// cannot be opened in another one.
func TokenContext(org OrgID, deployment ExecutionID) string {
	return "model token v1 " + org.String() + " " + deployment.String()
}

// SealedFor returns the execution for which the secrets of e are sealed: replicas have those
// of their service.
func (e *Execution) SealedFor() ExecutionID {
	if e.Parent.IsZero() {
		return e.ID
	}
	return e.Parent
}

// InferenceOffer is the offer of a node with an engine for models.
func InferenceOffer(engine string) Offer { return Offer(inferenceOffers + engine) }

const inferenceOffers = "inference:" // They begin the offers of engines for models.

// MaxReplicaFailures is how many replicas may fail with one request for a model: after the
// first, it is sent once more. The request may be the reason.
const MaxReplicaFailures = 2

// DetailReplicaLost is the detail of the error of a request with which replicas failed.
const DetailReplicaLost = "replica_lost"

// DeploymentState is the wanted state of a deployment.
type DeploymentState uint8

// The states. Values are written to disk: append only.
const (
	DeploymentActive  DeploymentState = iota // Its replicas run, or start.
	DeploymentPaused                         // It was idle: the next request resumes it.
	DeploymentStopped                        // Someone stopped it, or nothing paid for it, until someone starts it.
	DeploymentFailed                         // Its engine could not be started, until someone starts it.
)

var deploymentNames = names{"active", "paused", "stopped", "failed"}

// String returns the state as clients spell it.
func (s DeploymentState) String() string { return deploymentNames.text(uint8(s)) }

// Deployment is the part of a record that only the parent of a deployment has: how it
// scales, and its state.
type Deployment struct {
	Min int `cbor:"1,keyasint"` // Replicas while it is active.
	Max int `cbor:"2,keyasint"`

	TargetMilliRPS int64         `cbor:"3,keyasint"` // Requests per 1,000 seconds that one replica is meant to answer.
	TargetP95      time.Duration `cbor:"4,keyasint"` // 95th percentile of the time to an answer's first byte.
	Window         time.Duration `cbor:"5,keyasint"` // How long less must be enough before it scales down.
	Starts         int           `cbor:"6,keyasint"` // Failed starts in a row of one slot after which it has failed.

	State     DeploymentState `cbor:"7,keyasint,omitempty"`
	ChangedAt Instant         `cbor:"8,keyasint,omitempty"` // When State or the number of replicas last changed.
	Last      ExecutionID     `cbor:"9,keyasint,omitempty"` // The replica that ended last by itself.

	// Next is the model of the newest update, until a replica of it is ready or the
	// update was given up; nil for none.
	Next    *Inference `cbor:"10,keyasint,omitempty"`
	Updates uint64     `cbor:"11,keyasint,omitempty"` // How many there were.

	NextVRAMMiB int64 `cbor:"12,keyasint,omitempty"` // That each GPU must have at least for Next.

	// AskedVRAMMiB is the part of the record's MinVRAMMiB that the user asked for, whatever
	// the model needs; 0 for nothing, and in records before format 16.
	AskedVRAMMiB int64 `cbor:"13,keyasint,omitempty"`
}

// MaxWindow is the longest stabilisation window.
const MaxWindow = 24 * time.Hour

// First returns how many replicas a deployment has when it becomes active.
func (d *Deployment) First() int { return max(d.Min, 1) }
