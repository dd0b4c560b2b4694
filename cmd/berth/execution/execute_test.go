package execution

import (
	"testing"

	"berth/cmd/berth/clitest"
)

const (
	otherID = "0198c0de-0000-7000-8000-000000000002"
	started = `{"execution_id":"` + clitest.SomeID + `","status":"queued","message":"ok"}`
	stream  = "id: 1\ndata: {\"output\":{\"content\":\"hello\\n\"}}\n\n" +
		"id: 2\ndata: {\"output\":{\"content\":\"oops\\n\"},\"stream\":\"stderr\"}\n\n" +
		"id: 3\ndata: {\"jobFinished\":{\"job\":{\"result\":{\"returnCode\":\"3\",\"error\":null}}}}\n\n"
	ended = `{"execution_id":"` + clitest.SomeID + `","status":"failed","status_details":"exit_code","return_code":3,` +
		`"errors":["the code exited with code 3"],"combined_output":"hello\noops\n"}`
)

// execute executes a command line of berth.
func execute(t *testing.T, stdin string, args ...string) clitest.Result {
	t.Helper()
	root := clitest.Root(NewRun(), NewService(), NewDeploy(), NewGPU())
	return clitest.Execute(t.Context(), root, stdin, args...)
}
