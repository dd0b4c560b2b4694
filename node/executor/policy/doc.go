// Package policy defines what code in a sandbox may ask of the kernel, as plain
// data for sandbox.Spec. It assembles a seccomp program from the default allow
// list of container runtimes, with fewer calls, and selects the Landlock rights
// that this kernel supports.
//
// It imports the libraries for both, so that package sandbox does not need them.
// It installs nothing.
package policy
