package liblog_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"berth/cluster/liblog"
)

func TestLibraryLinesBecomeRecords(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	liblog.Raft(logger).Error("failed to make requestVote RPC", "target", "x", "error", errors.New("refused"))
	liblog.Raft(logger).Info("entering follower state", "follower", "me")
	liblog.Raft(logger).Debug("accepted connection")
	w := liblog.Memberlist(logger, nil)
	for _, line := range []string{
		"[WARN] memberlist: Refuting a suspect message (from: n2)\n",
		"[DEBUG] memberlist: Stream connection from=1\n",
	} {
		if n, err := io.WriteString(w, line); err != nil || n != len(line) {
			t.Errorf("%d bytes of %q written: %v", n, line, err)
		}
	}
	for _, want := range []string{
		`level=WARN msg="raft failed to make requestvote rpc" err="target=x error=refused"`,
		`level=INFO msg="raft entering follower state" err="follower=me"`,
		`level=WARN msg="memberlist refuting a suspect message (from" err=n2)`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %s in:\n%s", want, &out)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d records:\n%s", n, &out)
	}
}
