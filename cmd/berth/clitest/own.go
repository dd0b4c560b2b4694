//go:build !supervisor

package clitest

const tags = ""
