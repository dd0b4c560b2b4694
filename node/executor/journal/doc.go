// Package journal records the steps of one attempt in a file of JSON lines. Only
// the attempt's supervisor appends to it. The supervisor holds a lock on it
// until the attempt has ended or it dies, so that the lock shows whether anybody supervises the attempt.
//
// It is neither the output (package logs) nor the queue of outcomes to report (the
// outbox of package executor), which stores only what is not here. Only `starting` and `ended` are made durable before
// the next step, because a restart depends on them. Each line carries its CRC32C.
// A damaged line proves only that something was written: the code may have been
// started.
//
// It imports only the standard library, compute and fault, because supervisors
// load it before the rest of the binary initialises.
package journal
