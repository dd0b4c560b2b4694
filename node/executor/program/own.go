//go:build !supervisor || faults

package program

func embedded() []byte { return nil }
