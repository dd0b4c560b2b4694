package wire

import "berth/compute"

// StreamEvent is the data of an event on an output stream. An event carries
// either output, a part of one line, or the end of the execution.
type StreamEvent struct {
	Output *StreamOutput `json:"output,omitempty"`
	Stream string        `json:"stream,omitempty"` // stdout, stderr or system.

	At *compute.Instant `json:"at,omitempty"` // When the first line was written; the others are at most a second later.

	Finished *StreamEnd `json:"jobFinished,omitempty"`
	Missing  string     `json:"output_missing,omitempty"` // Why output may be missing before the end.
}

// StreamOutput is one or more lines, the last with its line feed unless the next event
// continues it.
type StreamOutput struct {
	Content string `json:"content"`
}

// StreamEnd is the last event of a stream, nested as clients of the
// specification expect it.
type StreamEnd struct {
	Job StreamJob `json:"job"`
}

// StreamJob has the result of an execution.
type StreamJob struct {
	Result StreamResult `json:"result"`
}

// StreamResult is how an execution ended.
type StreamResult struct {
	ReturnCode string  `json:"returnCode"` // "-1" if it never became a process.
	Error      *string `json:"error"`      // Nil for success.
}
