// Package notify notifies readers of output when the kernel reports a write to the
// directory that the output is in.
//
// It is not part of package logs, which supervisors import: they start within
// milliseconds and only write.
//
// Rules: a notification may be one too many, and none says what was written. A
// reader that needs each write reads until there is nothing new, then waits.
package notify
