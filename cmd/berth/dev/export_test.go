package dev

// Exported for tests.
var (
	WriteJSON = writeJSON
	TrimLog   = trimLog
	Belongs   = belongs
)

// MaxLogBytes is the size at which a log is rotated.
const MaxLogBytes = maxLogBytes
