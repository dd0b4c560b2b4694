package worker

import (
	"time"

	"berth/compute"
)

// The methods of workers. The certificate identifies the worker; reports on
// attempts of other nodes are refused.
const (
	methodPoll     = "attempts.poll"
	methodStart    = "attempts.start"
	methodFinish   = "attempts.finish"
	methodReady    = "attempts.ready"
	methodBundle   = "attempts.bundle"
	methodGet      = "attempts.get"
	methodVars     = "attempts.variables"
	methodRegistry = "attempts.registry"
	methodStorage  = "attempts.storage"
	methodPut      = "attempts.put"
	methodModel    = "attempts.model"
	methodArchive  = "attempts.archive"
	methodAnnounce = "nodes.announce"

	methodModelFile = "attempts.model_file" // A stream: the rest of a file.

	methodEnvironments      = "environments.list"
	methodEnvironmentReport = "environments.report"
)

// Times of a poll.
const (
	pollHold   = 10 * time.Second       // How long one is held while nothing changes.
	pollMargin = 2 * time.Second        // Of the hold, for the answer to travel.
	pollBehind = time.Second            // How long a server waits for its replica to be where the worker has been.
	pollBatch  = 2 * time.Millisecond   // Between two reads of a busy state.
	askEach    = 10 * time.Second       // One server's time for a report.
	askBundle  = 20 * time.Second       // The same for a bundle or another blob, which may be on another node.
	announceIn = 500 * time.Millisecond // Between tries to be known.
)

// pollRequest asks for the attempts of the worker that sends it.
type pollRequest struct {
	After  uint64       `cbor:"1,keyasint,omitempty"` // Newest index that it knows: no answer is of an older state.
	Digest compute.Hash `cbor:"2,keyasint"`           // Of the work that it has; zero for none yet.
	Fresh  bool         `cbor:"3,keyasint,omitempty"` // The answer must hold all that was acknowledged before.
}

// pollAnswer is all the work of a worker, whatever it had before: a lost
// answer loses nothing.
type pollAnswer struct {
	Work   []workItem   `cbor:"1,keyasint,omitempty"`
	Index  uint64       `cbor:"2,keyasint"`
	Digest compute.Hash `cbor:"3,keyasint"`
	Life   uint64       `cbor:"4,keyasint,omitempty"` // The epoch of the cluster in the state.
}

// workItem is one compute.Work as it travels.
type workItem struct {
	Attempt   *compute.Attempt   `cbor:"1,keyasint"`
	Execution *compute.Execution `cbor:"2,keyasint"`
	GPUs      []compute.GPU      `cbor:"3,keyasint,omitempty"`
}
