package compute

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Container is the part of a record that only executions in containers have: Docker
// images, Compose files, and services of an image.
type Container struct {
	// Images are the images, by their whole names: one, or those of all services of a
	// Compose file.
	Images []string `cbor:"1,keyasint,omitempty"`

	Digest string `cbor:"2,keyasint,omitempty"` // Digest of the executed image, once it is known.

	// Credentials are RegistryCredentials as JSON, sealed with the organization's data
	// key of this number. They are gone once the execution has ended.
	Credentials []byte `cbor:"3,keyasint,omitempty"`
	Key         uint64 `cbor:"4,keyasint,omitempty"`

	// Grace is how long the code may take to end after it was asked to; 0 for the
	// cluster's default.
	Grace time.Duration `cbor:"5,keyasint,omitempty"`

	// Reported is a client's report on the end of a Compose execution; nil before.
	Reported *Reported `cbor:"6,keyasint,omitempty"`
}

// Reported is a client's report on the end of an execution that it has watched. It
// decides nothing.
type Reported struct {
	Output     string  `cbor:"1,keyasint,omitempty"` // At most MaxReportedOutput bytes.
	Status     Status  `cbor:"2,keyasint,omitempty"` // Completed or failed; pending if it was not said.
	ReturnCode int64   `cbor:"3,keyasint,omitempty"`
	Exited     bool    `cbor:"5,keyasint,omitempty"` // ReturnCode was said.
	At         Instant `cbor:"4,keyasint"`
}

// Context returns the context that the credentials of an execution are sealed for. They
// cannot be opened in another one.
func (c *Container) Context(org OrgID, id ExecutionID) string {
	return "registry credentials v1 " + org.String() + " " + id.String()
}

// Limits of containers.
const (
	MaxImageName    = 512      // Bytes of the whole name of an image.
	MaxImages       = 64       // Images of one execution.
	MaxCredentials  = 16 << 10 // Bytes of sealed credentials.
	MaxContainerEnd = 5 * time.Minute

	MaxReportedOutput = 16 << 10
)

const (
	engineOffers  = "engine:"  // They begin the offers of engines.
	trustedEngine = "-trusted" // It ends those that are for trusted organizations.
)

// DockerOffer is the offer of a node with a Docker engine: to all organizations if
// its isolation is good enough, else to those that the operator trusts.
func DockerOffer(trusted bool) Offer {
	if trusted {
		return engineOffers + "docker" + trustedEngine
	}
	return engineOffers + "docker"
}

// ComposeOffer is the same for Docker Compose.
func ComposeOffer(trusted bool) Offer {
	if trusted {
		return engineOffers + "compose" + trustedEngine
	}
	return engineOffers + "compose"
}

// Engine returns the name of the engine that o offers, for containers or for models, and
// whether it is offered to trusted organizations; "" if o offers something else.
func (o Offer) Engine() (name string, trusted bool) {
	if name, ok := strings.CutPrefix(string(o), engineOffers); ok {
		return strings.CutSuffix(name, trustedEngine)
	}
	name, _ = strings.CutPrefix(string(o), inferenceOffers)
	if name == string(o) {
		return "", false
	}
	return name, false
}

// NeedsEngine reports whether r needs an engine of containers.
func (r *Request) NeedsEngine() bool {
	return slices.ContainsFunc(r.Needs, func(need Offer) bool { return strings.HasPrefix(string(need), engineOffers) })
}

// RefusesEngine returns why n has no engine for a request that needs one: ReasonNoEngine,
// or ReasonTrustedOnly if n has one for trusted organizations. It returns ReasonNone if
// the engine is no obstacle, or not the only one.
func (n *Node) RefusesEngine(r *Request) Reason {
	why, rest := ReasonNone, Request{ScratchMiB: r.ScratchMiB}
	for _, need := range r.Needs {
		switch {
		case !strings.HasPrefix(string(need), engineOffers):
			rest.Needs = append(rest.Needs, need)
		case n.OffersAll([]Offer{need}):
		case n.OffersAll([]Offer{need + trustedEngine}):
			why = ReasonTrustedOnly
		default:
			why = ReasonNoEngine
		}
	}
	if !n.Offering(&rest) {
		return ReasonNone
	}
	return why
}

const (
	imageOffers   = "image:" // They begin the offers of images.
	maxOfferImage = 120      // Bytes of a name that an offer has in full.
)

// ImageOffer is the offer of an image that is on a node's engine, by its whole name or,
// if that is long, by the name's hash. Nothing needs it: nodes that have it are
// preferred.
func ImageOffer(ref string) Offer {
	if len(ref) > maxOfferImage {
		sum := sha256.Sum256([]byte(ref))
		ref = hex.EncodeToString(sum[:])
	}
	return Offer(imageOffers + ref)
}

// Image reports whether o is the offer of an image.
func (o Offer) Image() bool { return strings.HasPrefix(string(o), imageOffers) }

// HasImages reports whether the images that e executes are on n already.
func (n *Node) HasImages(e *Execution) bool {
	if e.Container == nil {
		return false
	}
	for _, ref := range e.Container.Images {
		if _, found := slices.BinarySearch(n.Offers, ImageOffer(ref)); !found {
			return false
		}
	}
	return len(e.Container.Images) > 0
}
