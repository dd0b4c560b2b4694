package inspect

import (
	"testing"

	"berth/cmd/berth/clitest"
)

const otherID = "0198c0de-0000-7000-8000-000000000002"

// execute executes a command line of berth.
func execute(t *testing.T, stdin string, args ...string) clitest.Result {
	t.Helper()
	root := clitest.Root(NewCallbacks(), NewExplain(), NewMetrics(), NewWhatIf())
	return clitest.Execute(t.Context(), root, stdin, args...)
}
