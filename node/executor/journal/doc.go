// Package journal keeps what is certain about one attempt: a file of JSON
// lines, appended by its supervisor only, and held locked while the supervisor
// lives, so that the lock answers whether it does.
//
// It is not the output (package logs) nor the queue of outcomes to report (the
// outbox of package executor). Only `starting` and `ended` are made durable
// before the next step: they are what a restart decides on. Each line carries
// its CRC32C. A line that is not whole says nothing but that something was
// written: the code may have been started.
//
// It imports the standard library, compute and fault only: supervisors load it
// before the rest of the binary initialises.
package journal
