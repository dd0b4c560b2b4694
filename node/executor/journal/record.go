package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"berth/compute"
)

// The events, in the order in which they happen.
const (
	eventStarting = "starting"
	eventStarted  = "started"
	eventEnded    = "ended"
)

// record is one line of a journal. The fields of an outcome are set on `ended`
// only.
type record struct {
	Event string `json:"event"`
	AtMs  int64  `json:"at_ms"`

	Execution   compute.ExecutionID `json:"execution,omitzero"`
	Epoch       uint64              `json:"epoch,omitempty"`
	Status      compute.Status      `json:"status,omitempty"`
	Reason      compute.Reason      `json:"reason,omitempty"`
	Detail      string              `json:"detail,omitempty"`
	Ran         bool                `json:"ran,omitempty"`
	ExitCode    int                 `json:"exit_code,omitempty"`
	ExecletAtMs int64               `json:"execlet_at_ms,omitempty"`
	StartedAtMs int64               `json:"started_at_ms,omitempty"`
	DurationNs  int64               `json:"duration_ns,omitempty"`
	Usage       *usage              `json:"usage,omitempty"`
	Digest      string              `json:"digest,omitempty"`
	Outputs     *compute.Outputs    `json:"outputs,omitempty"` // Only in the outbox: the node stores them.
	Series      *compute.Hash       `json:"series,omitempty"`  // The same.
}

// usage is the stored form of compute.Usage.
type usage struct {
	CPUNs          int64 `json:"cpu_ns"`
	PeakMemoryMiB  int64 `json:"peak_memory_mib"`
	GPUUtilPercent int   `json:"gpu_util_percent,omitempty"`
	GPUMemoryMiB   int64 `json:"gpu_memory_mib,omitempty"`
	OutputBytes    int64 `json:"output_bytes"`
	OutputLines    int64 `json:"output_lines"`

	// Only in the outbox, because the node measures GPUs and the supervisor does not.
	PowerMilliW  int64                 `json:"power_mw,omitempty"`
	EnergyMilliJ int64                 `json:"energy_mj,omitempty"`
	Simulated    bool                  `json:"simulated,omitempty"`
	Samples      []compute.UsageSample `json:"samples,omitempty"`
}

func starting(at compute.Instant) record { return record{Event: eventStarting, AtMs: int64(at)} }

func started(at compute.Instant) record { return record{Event: eventStarted, AtMs: int64(at)} }

func recordOf(o compute.Outcome) record {
	return record{
		Event: eventEnded, AtMs: int64(o.EndedAt),
		Execution: o.Execution, Epoch: o.Epoch, Status: o.Status, Reason: o.Reason,
		Detail: o.Detail, Ran: o.Ran, ExitCode: o.ExitCode,
		ExecletAtMs: int64(o.ExecletAt), StartedAtMs: int64(o.StartedAt),
		DurationNs: int64(o.Duration), Outputs: o.Outputs, Series: o.Series, Digest: o.Digest,
		Usage: &usage{
			CPUNs: int64(o.Usage.CPUTime), PeakMemoryMiB: o.Usage.PeakMemoryMiB,
			GPUUtilPercent: o.Usage.GPUUtilPercent, GPUMemoryMiB: o.Usage.GPUMemoryMiB,
			OutputBytes: o.Usage.OutputBytes, OutputLines: o.Usage.OutputLines,
			PowerMilliW: o.Usage.PowerMilliW, EnergyMilliJ: o.Usage.EnergyMilliJ,
			Simulated: o.Usage.Simulated, Samples: o.Usage.Samples,
		},
	}
}

func (r record) outcome() *compute.Outcome {
	o := &compute.Outcome{
		Execution: r.Execution, Epoch: r.Epoch, Status: r.Status, Reason: r.Reason,
		Detail: r.Detail, Ran: r.Ran, ExitCode: r.ExitCode,
		ExecletAt: compute.Instant(r.ExecletAtMs), StartedAt: compute.Instant(r.StartedAtMs),
		EndedAt: compute.Instant(r.AtMs), Duration: time.Duration(r.DurationNs),
		Outputs: r.Outputs, Series: r.Series, Digest: r.Digest,
	}
	if u := r.Usage; u != nil {
		o.Usage = compute.Usage{
			CPUTime: time.Duration(u.CPUNs), PeakMemoryMiB: u.PeakMemoryMiB,
			GPUUtilPercent: u.GPUUtilPercent, GPUMemoryMiB: u.GPUMemoryMiB,
			OutputBytes: u.OutputBytes, OutputLines: u.OutputLines,
			PowerMilliW: u.PowerMilliW, EnergyMilliJ: u.EnergyMilliJ,
			Simulated: u.Simulated, Samples: u.Samples,
		}
	}
	return o
}

// sumLen is the length of a line's checksum in hexadecimal digits.
const sumLen = 2 * crc32.Size

// errDamaged is returned for a corrupt line.
var errDamaged = errors.New("corrupt line")

// line returns the stored form of r: the CRC32C of the JSON in hexadecimal digits,
// a space, the JSON and a newline.
func (r record) line() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s %s\n", sumOf(data), data), nil
}

// sumOf returns the stored form of the checksum of a line's JSON.
func sumOf(data []byte) []byte {
	return fmt.Appendf(nil, "%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

// appended returns the bytes that are appended to a journal for r. They begin with
// a newline, which ends a torn line if there is one. Empty lines are ignored.
func (r record) appended() ([]byte, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	return append([]byte{'\n'}, line...), nil
}

// parse returns the record of a stored line.
func parse(line []byte) (r record, err error) {
	data, whole := bytes.CutSuffix(line, []byte{'\n'})
	if !whole || len(data) <= sumLen || data[sumLen] != ' ' {
		return record{}, errDamaged
	}
	if !bytes.Equal(sumOf(data[sumLen+1:]), data[:sumLen]) {
		return record{}, errDamaged
	}
	err = json.Unmarshal(data[sumLen+1:], &r)
	return r, err
}

// StartingLine returns the bytes that Starting writes, for journals that are not
// files.
func StartingLine(at compute.Instant) ([]byte, error) { return starting(at).appended() }

// StartedLine returns the bytes that Started writes.
func StartedLine(at compute.Instant) ([]byte, error) { return started(at).appended() }

// EndedLine returns the bytes that Ended writes.
func EndedLine(o compute.Outcome) ([]byte, error) { return recordOf(o).appended() }

// Encode returns o as one line, for the outbox.
func Encode(o compute.Outcome) ([]byte, error) {
	line, err := recordOf(o).line()
	if err != nil {
		return nil, fmt.Errorf("encode outcome: %w", err)
	}
	return line, nil
}

// Decode returns the outcome that Encode wrote.
func Decode(data []byte) (compute.Outcome, error) {
	r, err := parse(data)
	if err != nil {
		return compute.Outcome{}, fmt.Errorf("decode outcome: %w", err)
	}
	if r.Event != eventEnded {
		return compute.Outcome{}, fmt.Errorf("decode outcome: %q is not an outcome", r.Event)
	}
	return *r.outcome(), nil
}
