package fsm

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"berth/compute"
	"berth/fsm/store"
)

// Limits of encoded commands.
const (
	MaxCommand  = 256 << 10 // Bytes of one frame.
	frameHeader = 6         // Kind, version, length.
)

// version is the version of every command's encoding. A kind whose meaning
// changes gets a new kind, never another reading of an old log.
const version = 1

// Encode returns cmd as one frame. It checks that the frame decodes, so that a frame
// that no replica could read is never proposed.
func Encode(cmd Command) ([]byte, error) { return commands.encode(cmd) }

// errFrame is returned for bytes that end inside a frame.
var errFrame = errors.New("frame is cut short")

// Decode returns the command of the first frame and the bytes behind it.
func Decode(entry []byte) (Command, []byte, error) {
	c, rest, err := commands.decode(entry)
	return c.cmd, rest, err
}

// DecodeResult returns the result that Apply encoded.
func DecodeResult(data []byte) (Result, error) {
	var r Result
	if err := store.DecodeKnown(data, &r); err != nil {
		return Result{}, fmt.Errorf("decode result: %w", err)
	}
	return r, nil
}

// PlansOf returns the plans in the data of one entry, in order.
func PlansOf(entry []byte) ([]CommitPlan, error) {
	var plans []CommitPlan
	for len(entry) > 0 {
		cmd, rest, err := Decode(entry)
		if err != nil {
			return nil, err
		}
		if plan, ok := cmd.(CommitPlan); ok {
			plans = append(plans, plan)
		}
		entry = rest
	}
	return plans, nil
}

// HashPlan returns the SHA-256 of a plan's encoding.
func HashPlan(plan compute.Plan) compute.Hash { return sha256.Sum256(store.MustEncode(&plan)) }
