package admin

import (
	"testing"

	"berth/cmd/berth/clitest"
)

// execute executes a command line of berth.
func execute(t *testing.T, stdin string, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t.Context(), clitest.Root(New()), stdin, args...)
}
