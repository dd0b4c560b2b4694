package dev

// For tests of what has no use outside.
var (
	WriteJSON = writeJSON
	TrimLog   = trimLog
	Belongs   = belongs
)

// MaxLogBytes is when a log is moved out of the way.
const MaxLogBytes = maxLogBytes
