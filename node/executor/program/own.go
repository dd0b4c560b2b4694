//go:build !supervisor

package program

func embedded() []byte { return nil }
