package fsm

import (
	"iter"
	"path"
	"slices"
	"strings"

	"berth/compute"
)

// maxVolumes is how many volumes one execution asks for.
const maxVolumes = 16

// maxMountPath limits the path at which storage is mounted, in bytes.
const maxMountPath = 512

// badMountPath reports whether storage cannot be mounted at a path.
func badMountPath(p string) bool {
	return !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > maxMountPath
}

// askOffers adds to the request of e the offers that its node must have. It refuses
// offers that no known node has, and lists those that exist.
func (s *execution) askOffers(e *compute.Execution) *compute.Error {
	e.Request.ScratchMiB = e.ScratchMiB
	for _, v := range e.Volumes {
		e.Request.Needs = append(e.Request.Needs, compute.VolumeOffer(v.Name))
	}
	s.needEngine(e)
	if e.Storage != nil && !e.Storage.Optional {
		e.Request.Needs = append(e.Request.Needs, compute.MountOffer)
	}
	if e.Inference != nil {
		e.Request.Needs = append(e.Request.Needs, compute.InferenceOffer(e.Inference.Engine))
	}
	if !e.Environment.ID.IsZero() {
		e.Request.Needs = append(e.Request.Needs, compute.EnvironmentOffer(e.Environment.ID.String()))
	}
	slices.Sort(e.Request.Needs)
	e.Request.Needs = slices.Compact(e.Request.Needs)
	if s.view.offered.nodes == 0 {
		return nil // Before a node has reported, everything waits.
	}
	// An environment may be on its way.
	r := compute.Request{ScratchMiB: e.Request.ScratchMiB, Needs: e.Request.WithoutEnvironments()}
	return s.view.missingOffer(&r)
}

// missingOffer returns why no known node meets the needs of r beside capacity, or nil.
func (v *nodeTables) missingOffer(r *compute.Request) *compute.Error {
	if r.ScratchMiB == 0 && len(r.Needs) == 0 {
		return nil
	}
	most, offers := int64(0), make(map[compute.Offer]bool)
	for n := range v.Nodes() {
		if n.Equipped(r) { // It waits for an engine that does not answer.
			return nil
		}
		most = max(most, n.ScratchMiB)
		for _, offer := range n.Offers {
			offers[offer] = true
		}
	}
	if r.ScratchMiB > most {
		return compute.Errorf(compute.CodeInvalid, "no node has %d MiB of scratch space on disk: the most is %d MiB",
			r.ScratchMiB, most).Named("never_fits")
	}
	for _, need := range r.Needs {
		if !offers[need] {
			return errNoOffer(need, offers)
		}
	}
	return compute.Errorf(compute.CodeInvalid,
		"no single node has all that it needs: %s", joinOffers(slices.Values(r.Needs))).Named("never_fits")
}

// errNoOffer says that no node has the offer, and which there are of its kind.
func errNoOffer(need compute.Offer, offers map[compute.Offer]bool) *compute.Error {
	kind, name, _ := strings.Cut(string(need), ":")
	if kind == "engine" {
		return errNoEngine(name, offers)
	}
	if need == compute.MountOffer {
		return compute.Errorf(compute.CodeInvalid, "no node can mount storage: load the kernel module fuse on one "+
			"(modprobe fuse), so that it has /dev/fuse, or start without enable_s3_mount").Named("no_storage_mount")
	}
	known := func(yield func(compute.Offer) bool) {
		for offer := range offers { // Any order will do: joinOffers sorts them.
			if strings.HasPrefix(string(offer), kind+":") && !yield(offer) {
				return
			}
		}
	}
	list := joinOffers(known)
	if list == "" {
		list = "none"
	}
	noun := kind
	if kind == "inference" {
		kind, noun = "engine", "inference engine"
	}
	return compute.Errorf(compute.CodeInvalid, "no node has the %s %q; there are: %s", noun, name, list).
		Named("unknown_" + kind)
}

// errNoEngine says that no node has the engine of containers that an execution needs.
func errNoEngine(name string, offers map[compute.Offer]bool) *compute.Error {
	which, _, _ := strings.Cut(name, "-")
	if offers[compute.Offer("engine:"+which+"-trusted")] {
		return compute.Errorf(compute.CodeInvalid,
			"the nodes that have %s isolate containers below the minimum, and execute "+
				"those of trusted organizations only: an operator can trust the organization or update the engines", which).
			Named("trusted_only")
	}
	return compute.Errorf(compute.CodeInvalid,
		"no node has %s: an operator installs it, or enables it with docker.host", which).
		Named("no_engine")
}

// joinOffers lists the names of offers, sorted.
func joinOffers(offers iter.Seq[compute.Offer]) string {
	var names []string
	for offer := range offers {
		_, name, _ := strings.Cut(string(offer), ":")
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
