package liblog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

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
		`level=WARN msg="raft failed to make requestvote rpc" detail="target=x" err=refused`,
		`level=INFO msg="raft entering follower state" detail="follower=me"`,
		`level=WARN msg="memberlist refuting a suspect message (from" detail=n2)`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %s in:\n%s", want, &out)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d records:\n%s", n, &out)
	}
}

// TestStrangersWriteLittle checks that events that strangers cause are logged a few times
// a minute, and that the rest is counted.
func TestStrangersWriteLittle(t *testing.T) {
	var s liblog.Sampler
	now := time.Unix(1_800_000_000, 0)
	logged := 0
	for i := range 10_000 {
		if _, ok := s.Allow(now, fmt.Sprint("address ", i%3)); ok {
			logged++
		}
	}
	if logged > 15 {
		t.Errorf("%d of 10,000 records of three addresses are logged", logged)
	}
	for i := range 10_000 {
		if _, ok := s.Allow(now, fmt.Sprint("other ", i)); ok {
			logged++
		}
	}
	if logged > 1015 {
		t.Errorf("%d records of many addresses are logged", logged)
	}
	dropped, ok := s.Allow(now.Add(time.Minute), "address 0")
	if !ok || dropped != 20_000-logged {
		t.Errorf("a minute later: %t, %d dropped, want %d", ok, dropped, 20_000-logged)
	}
}
