package composefile

import (
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/distribution/reference"
)

// Parts of the names that nodes give images on their engines.
const (
	PulledHost = "berth.pulled" // Begins the names of images that are on the engine.
	RelayPath  = "berth-pull"   // Begins those of images that are being pulled, from an address of the machine's own.
)

// GPUVariables begins the names of variables by which the engine's runtime hands out devices:
// those of users are dropped.
const GPUVariables = "NVIDIA_"

// ErrOwnName refuses a name of an image that is a node's own: by it, everybody would have what
// somebody pulled with credentials.
var ErrOwnName = errors.New("images whose names begin with " + PulledHost + "/ are those of nodes: " +
	"name the image as its registry does")

// OwnName reports whether a name of an image is one that only nodes use.
func OwnName(named reference.Named) bool {
	host := strings.ToLower(reference.Domain(named))
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == PulledHost {
		return true
	}
	first, _, _ := strings.Cut(reference.Path(named), "/")
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return first == RelayPath && (host == "localhost" || err == nil && address.Unmap().IsLoopback())
}
