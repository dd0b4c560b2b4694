package command

import (
	"encoding/binary"
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

// errFrame is returned for bytes that end inside a frame.
var errFrame = errors.New("frame is cut short")

// Encode returns cmd as one frame. It checks that the frame decodes, so that a frame
// that no replica could read is never proposed.
func Encode(cmd Command) ([]byte, error) { return commands.encode(cmd) }

// Decode returns the command of the first frame and the bytes behind it.
func Decode(entry []byte) (Command, []byte, error) {
	c, rest, err := commands.decode(entry)
	return c.Command, rest, err
}

// Read is Decode with what the table says of the command.
func Read(entry []byte) (Call, []byte, error) { return commands.decode(entry) }

// encode returns cmd as one frame.
func (t *table) encode(cmd Command) ([]byte, error) {
	r, err := t.rowOf(cmd)
	if err != nil {
		return nil, err
	}
	frame, err := store.EncodeBehind(frameHeader, cmd)
	if err != nil {
		return nil, fmt.Errorf("encode command %d: %w", r.number, err)
	}
	if len(frame) > MaxCommand {
		return nil, compute.Errorf(compute.CodeTooLarge,
			"the request needs %d bytes in the log, at most %d fit",
			len(frame), MaxCommand).Named("command_too_large")
	}
	payload := frame[frameHeader:]
	frame[0], frame[1] = r.number, version
	binary.BigEndian.PutUint32(frame[2:], uint32(len(payload)))
	if size := r.schema.Size(payload); size > 0 && size == len(payload) {
		return frame, nil // It decodes.
	}
	if _, _, err := t.decode(frame); err != nil {
		return nil, fmt.Errorf("encode command %d: %w", r.number, err)
	}
	return frame, nil
}

// decode returns the command of the first frame and the bytes behind it.
func (t *table) decode(entry []byte) (Call, []byte, error) {
	if len(entry) < frameHeader {
		return Call{}, nil, errFrame
	}
	number, v, size := entry[0], entry[1], binary.BigEndian.Uint32(entry[2:])
	rest := entry[frameHeader:]
	switch {
	case size > MaxCommand-frameHeader:
		return Call{}, nil, fmt.Errorf("frame of %d bytes, at most %d allowed", size, MaxCommand)
	case uint32(len(rest)) < size:
		return Call{}, nil, errFrame
	case v != version:
		return Call{}, nil, fmt.Errorf("command %d has version %d, known is %d", number, v, version)
	}
	r := t.byNumber[number]
	if r == nil {
		return Call{}, nil, fmt.Errorf("decode command %d: unknown kind", number)
	}
	cmd, err := r.decode(rest[:size])
	if err != nil {
		return Call{}, nil, fmt.Errorf("decode command %d: %w", number, err)
	}
	return Call{cmd, r}, rest[size:], nil
}

// DecodeResult returns the result that Apply encoded.
func DecodeResult(data []byte) (Result, error) {
	var r Result
	if err := store.DecodeKnown(data, &r); err != nil {
		return Result{}, fmt.Errorf("decode result: %w", err)
	}
	return r, nil
}

// Frame is one command of an entry, for people.
type Frame struct {
	Command string        `json:"command"`         // "CreateKey"; "" where this program cannot read it.
	Org     compute.OrgID `json:"org_id,omitzero"` // The organization of a request.
	Op      compute.OpID  `json:"op_id,omitzero"`
	Bytes   int           `json:"bytes"`
}

// Frames returns the commands in an entry. The rest that cannot be split is one
// frame.
func Frames(entry []byte) []Frame {
	var out []Frame
	for len(entry) > 0 {
		size := uint64(len(entry))
		if len(entry) >= frameHeader {
			size = min(size, frameHeader+uint64(binary.BigEndian.Uint32(entry[2:])))
		}
		f := Frame{Bytes: int(size)}
		if c, _, err := commands.decode(entry[:size]); err == nil {
			op, _ := c.Op()
			f.Command, f.Org, f.Op = c.Name(), op.Org, op.ID
		}
		out = append(out, f)
		entry = entry[size:]
	}
	return out
}
