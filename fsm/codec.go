package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"berth/fsm/store"

	"berth/compute"
)

// Limits of what is encoded and decoded.
const (
	MaxCommand  = 256 << 10 // Bytes of one frame.
	frameHeader = 6         // Kind, version, length.
)

// version is the version of every command's encoding. A kind whose meaning
// changes gets a new kind, never another reading of an old log.
const version = 1

// Encode returns cmd as one frame. It decodes what it made, so that a frame
// that no replica could read is never proposed.
func Encode(cmd Command) ([]byte, error) {
	payload, err := store.Encode(cmd)
	if err != nil {
		return nil, fmt.Errorf("encode command %d: %w", cmd.Kind(), err)
	}
	if len(payload)+frameHeader > MaxCommand {
		return nil, compute.Errorf(compute.CodeTooLarge,
			"the request needs %d bytes in the log, at most %d fit",
			len(payload)+frameHeader, MaxCommand).Named("command_too_large")
	}
	frame := make([]byte, 0, frameHeader+len(payload))
	frame = append(frame, byte(cmd.Kind()), version)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(payload)))
	frame = append(frame, payload...)
	if _, _, err := Decode(frame); err != nil {
		return nil, fmt.Errorf("encode command %d: %w", cmd.Kind(), err)
	}
	return frame, nil
}

// errFrame is returned for bytes that end inside a frame.
var errFrame = errors.New("frame is cut short")

// Decode returns the command of the first frame and the bytes behind it.
func Decode(entry []byte) (Command, []byte, error) {
	if len(entry) < frameHeader {
		return nil, nil, errFrame
	}
	kind, v, size := Kind(entry[0]), entry[1], binary.BigEndian.Uint32(entry[2:])
	rest := entry[frameHeader:]
	switch {
	case size > MaxCommand-frameHeader:
		return nil, nil, fmt.Errorf("frame of %d bytes, at most %d allowed", size, MaxCommand)
	case uint32(len(rest)) < size:
		return nil, nil, errFrame
	case v != version:
		return nil, nil, fmt.Errorf("command %d has version %d, known is %d", kind, v, version)
	}
	cmd, err := decodePayload(kind, rest[:size])
	if err != nil {
		return nil, nil, fmt.Errorf("decode command %d: %w", kind, err)
	}
	return cmd, rest[size:], nil
}

// DecodeResult returns the result that Apply encoded.
func DecodeResult(data []byte) (Result, error) {
	var r Result
	if err := store.DecodeKnown(data, &r); err != nil {
		return Result{}, fmt.Errorf("decode result: %w", err)
	}
	return r, nil
}

func decodeAs[T Command](payload []byte) (Command, error) {
	var cmd T
	if err := store.Decode(payload, &cmd); err != nil {
		return nil, err
	}
	return cmd, nil
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
