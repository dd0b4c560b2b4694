//go:build client

package main

import "github.com/spf13/cobra"

// serverCommands returns none: nodes run on Linux, with a build of their own.
func serverCommands() []*cobra.Command { return nil }

// takeOver does nothing: clients supervise nothing.
func takeOver() {}
