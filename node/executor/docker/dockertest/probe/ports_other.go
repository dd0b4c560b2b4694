//go:build !amd64

package main

import "errors"

// ioports fails: only x86 has ports.
func ioports([]string) error { return errors.ErrUnsupported }
