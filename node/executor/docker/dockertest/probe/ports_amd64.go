package main

import "golang.org/x/sys/unix"

// ioports asks for the input and output ports of the machine.
func ioports([]string) error { return notPermitted(unix.Ioperm(0x80, 1, 1)) }
