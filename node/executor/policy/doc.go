// Package policy says what code in a sandbox may ask of the kernel, as plain
// data that sandbox.Spec carries: a seccomp program assembled from the allow
// list that container runtimes use, narrowed, and the Landlock rights that
// this kernel knows.
//
// It is where the libraries for both live, so that the sandbox itself can do
// without them. It installs nothing.
package policy
