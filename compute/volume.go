package compute

import "strings"

// Volume is a directory of a node that an execution asks for by the name under
// which the operator offers it.
type Volume struct {
	Name     string `cbor:"1,keyasint" json:"name"`
	Path     string `cbor:"2,keyasint,omitempty" json:"path,omitempty"` // Where the code sees it; "" for /mnt/NAME.
	ReadOnly bool   `cbor:"3,keyasint,omitempty" json:"read_only,omitempty"`
}

// VolumesDir is where code sees a volume without a Path.
const VolumesDir = "/mnt"

// Offer is something that a node has and others may lack, which an execution can
// need: a volume, or a prepared environment.
type Offer string

// VolumeOffer is the offer of the volume with the name.
func VolumeOffer(name string) Offer { return Offer("volume:" + name) }

// environmentOffers begin the offers of environments.
const environmentOffers = "environment:"

// EnvironmentOffer is the offer of the prepared environment with the key.
func EnvironmentOffer(key string) Offer { return Offer(environmentOffers + key) }

// Environment returns the key of a prepared environment, false for another offer.
func (o Offer) Environment() (key string, ok bool) {
	return strings.CutPrefix(string(o), environmentOffers)
}
