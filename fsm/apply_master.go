package fsm

import (
	"bytes"
	"crypto/sha256"

	"berth/compute"
	"berth/fsm/command"
)

// Limits of the rotation of the master key.
const (
	maxSealing = 2  // Keys that seal at a time, while servers change from one to the other.
	prefixSize = 5  // Bytes.
	maxReseal  = 50 // Keys of one command.
)

// Sealing returns the beginnings that sealed keys must have; none when any is accepted.
func (v *clusterState) Sealing() [][]byte { return v.meta.Sealing }

// SealedOtherwise returns the keys that another key of the master key has sealed than the
// one whose ciphertexts begin with prefix.
func (v *View) SealedOtherwise(prefix []byte) (out []command.SealedKey) {
	add := func(k command.SealedKey, sealed []byte) {
		if len(sealed) > 0 && !bytes.HasPrefix(sealed, prefix) {
			k.Sealed, k.Before = sealed, sha256.Sum256(sealed)
			out = append(out, k)
		}
	}
	for k := range v.dataKeys.Values() {
		add(command.SealedKey{Kind: command.SealedData, Org: k.Org}, k.Sealed)
	}
	for b := range v.buckets.Values() {
		add(command.SealedKey{Kind: command.SealedBucket, Org: b.Org}, b.Sealed)
	}
	for k := range v.signing.Values() {
		add(command.SealedKey{Kind: command.SealedSigning, ID: k.ID}, k.Sealed)
	}
	return out
}

// admitSealed refuses a key that a key of the master key has sealed which no longer
// seals: its server has not heard of the rotation yet.
func (v *clusterState) admitSealed(sealed []byte) *compute.Error {
	if len(v.meta.Sealing) == 0 {
		return nil
	}
	for _, prefix := range v.meta.Sealing {
		if bytes.HasPrefix(sealed, prefix) {
			return nil
		}
	}
	return compute.Errorf(compute.CodeUnavailable,
		"the master key is being rotated: try again").Named("master_key_rotated")
}

// sealWith names the keys that may seal from now on.
func (s *identity) sealWith(c command.SealWith) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if len(c.Prefixes) == 0 || len(c.Prefixes) > maxSealing {
		return refuse(compute.CodeInvalid, "sealing", "one or two keys seal")
	}
	if c.Before != (compute.Hash{}) && c.Before != command.SealingHash(s.view.meta.Sealing) {
		return refuse(compute.CodeConflict, "rotation_in_progress",
			"another rotation of the master key has begun: try again when it has ended")
	}
	sealing := make([][]byte, len(c.Prefixes))
	for i, prefix := range c.Prefixes {
		if len(prefix) != prefixSize {
			return refuse(compute.CodeInvalid, "sealing", "a key is named by %d bytes", prefixSize)
		}
		sealing[i] = bytes.Clone(prefix)
	}
	s.view.meta.Sealing = sealing
	return command.Result{}
}

// rotateRootToken replaces the root token.
func (s *identity) rotateRootToken(c command.RotateRootToken) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if c.Before != s.view.meta.RootToken {
		return refuse(compute.CodeConflict, "rotation_in_progress", "the root token was rotated meanwhile")
	}
	if c.Token == (compute.Hash{}) || c.Token == c.Before {
		return refuse(compute.CodeInvalid, "root_token", "the new root token is another one")
	}
	s.view.meta.RootToken = c.Token
	s.view.meta.RootVersion++
	return command.Result{}
}

// resealKeys replaces keys that an earlier master key has sealed. A key that was changed
// meanwhile stays.
func (s *identity) resealKeys(c command.Reseal) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if len(c.Keys) > maxReseal {
		return refuse(compute.CodeTooLarge, "reseal", "a command has at most %d keys", maxReseal)
	}
	var r command.Result
	for i := range c.Keys {
		k := &c.Keys[i]
		if len(k.Sealed) > maxSealedKey || s.view.admitSealed(k.Sealed) != nil {
			continue
		}
		if s.resealKey(k) {
			r.Count++
		}
	}
	return r
}

// resealKey replaces one key, and reports whether it was the one that k replaces.
func (s *identity) resealKey(k *command.SealedKey) bool {
	is := func(sealed []byte) bool { return len(sealed) > 0 && sha256.Sum256(sealed) == k.Before }
	switch k.Kind {
	case command.SealedData:
		if known, ok := s.view.dataKeys.Get(k.Org); ok && is(known.Sealed) {
			next := *known
			next.Sealed = k.Sealed
			s.view.dataKeys.Put(&next)
			return true
		}
	case command.SealedBucket:
		if known, ok := s.view.buckets.Get(k.Org); ok && is(known.Sealed) {
			next := *known
			next.Sealed = k.Sealed
			s.view.buckets.Put(&next)
			return true
		}
	case command.SealedSigning:
		if known, ok := s.view.signing.Get(k.ID); ok && is(known.Sealed) {
			next := *known
			next.Sealed = k.Sealed
			s.view.signing.Put(&next)
			return true
		}
	}
	return false
}
