// Package clitest executes commands of berth in tests: a command line and its
// exit code and output, a fake API for it to call, and golden files.
//
// Only tests import this package.
package clitest
