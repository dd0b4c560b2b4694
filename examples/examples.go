// Package examples holds programs to execute on a cluster, for people to read
// and for the demonstration and tests to send.
package examples

import _ "embed"

// Matmul is a matrix product that checks itself: some seconds of real work for
// one CPU core.
//
//go:embed matmul.py
var Matmul string
