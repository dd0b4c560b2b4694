// Package inspect has the commands that look at executions and at what decides about them:
// lists and records, output, metrics, files, callbacks, and why something waits.
//
// Each command has its own file. It also has what all commands that follow an execution share:
// which one an argument names (find.go), and the exit code of its end (outcome.go). Package
// execution starts and ends executions, and imports this one.
package inspect
