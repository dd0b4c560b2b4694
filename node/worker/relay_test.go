package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"berth/api/edge"
	"berth/attempt"
	"berth/cluster/rpc"
	"berth/compute"
)

func TestFrames(t *testing.T) {
	var wire bytes.Buffer
	w := &frameWriter{&wire}
	text := strings.Repeat("0123456789", maxAnswerPart/4)
	for _, part := range []string{"head", text, "", "tail"} {
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	whole := wire.Bytes()
	got, err := io.ReadAll(&frameReader{r: iotest.HalfReader(bytes.NewReader(whole))})
	if err != nil || string(got) != "head"+text+"tail" {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	for _, cut := range []int{0, 2, 4, 6, 8, len(whole) / 2, len(whole) - 4, len(whole) - 1} {
		if _, err := io.ReadAll(&frameReader{r: bytes.NewReader(whole[:cut])}); !errors.Is(err, errCut) {
			t.Errorf("cut off at %d it is read with %v", cut, err)
		}
	}
	if _, err := io.ReadAll(&frameReader{r: bytes.NewReader([]byte{0xff, 0, 0, 0, 1})}); err == nil {
		t.Error("a frame over the limit was read")
	}
}

// leftConn is a connection whose other end has closed it.
type leftConn struct {
	net.Conn

	closed bool
}

func (*leftConn) Read([]byte) (int, error) { return 0, io.EOF }

func (c *leftConn) Close() error {
	c.closed = true
	return nil
}

// TestHangUpEndsWrites reads from the stream of a worker that has hung up: it is
// closed, and so is what waits for the worker to read.
func TestHangUpEndsWrites(t *testing.T) {
	conn := &leftConn{}
	if _, err := (hangUp{conn}).Read(make([]byte, 1)); !errors.Is(err, io.EOF) || !conn.closed {
		t.Errorf("read %v; closed: %v", err, conn.closed)
	}
}

// TestLargeRelaysTakeTurns hands on a large body while another one of the same
// credential is handed on: it waits.
func TestLargeRelaysTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRelay(nil, nil) // It has no cluster to ask before its turn.
		done, err := r.large.Take(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := r.Relay(ctx, edge.Relayed{Bearer: "key", Body: make([]byte, largeBody+1)})
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestRelayedStreamGoesOn cuts a stream at every byte: what comes from a second
// server behind the last whole event makes it whole.
func TestRelayedStreamGoesOn(t *testing.T) {
	events := []string{": berth\n\n", "id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n", ": berth\n\n", "data: end\n\n"}
	all := strings.Join(events, "")
	for cut := range len(all) {
		s := &relayedStream{ctx: t.Context(), body: io.NopCloser(strings.NewReader(all[:cut]))}
		for s.more() == nil && s.body != nil {
		}
		rest := map[string]string{"": all, "1": all[len(events[0])+len(events[1]):], "2": strings.Join(events[3:], "")}[s.in.LastEventID]
		if !s.ended {
			s.body = io.NopCloser(strings.NewReader(rest))
		}
		got, err := io.ReadAll(s)
		if plain := strings.ReplaceAll(string(got), ": berth\n\n", ""); err != nil || plain != "id: 1\ndata: a\n\nid: 2\ndata: b\n\ndata: end\n\n" {
			t.Fatalf("cut off at %d it is %q, %v", cut, got, err)
		}
	}
}

// scripted answers calls of a worker with what a test prepared.
type scripted struct {
	Upstream

	answer func(method string, req pollRequest) (pollAnswer, error)
}

func (s *scripted) EachServer(ctx context.Context, do func(context.Context, compute.NodeID) error) error {
	return do(ctx, compute.NodeID{})
}

func (s *scripted) Call(_ context.Context, _ compute.NodeID, method string, req []byte) ([]byte, error) {
	codec := rpc.NewCodec()
	var poll pollRequest
	if err := codec.Unmarshal(req, &poll); err != nil {
		return nil, err
	}
	answer, err := s.answer(method, poll)
	return codec.Marshal(answer), err
}

// TestPollsGoForward follows the indexes that a worker sends to servers.
func TestPollsGoForward(t *testing.T) {
	peer := &quietPeer{}
	var asked pollRequest
	lost := errors.New("lost")
	var answers []any
	own := NewAssignments(&polled{peer, &scripted{answer: func(_ string, req pollRequest) (pollAnswer, error) {
		asked = req
		next := answers[0]
		answers = answers[1:]
		if err, failed := next.(error); failed {
			return pollAnswer{}, err
		}
		return next.(pollAnswer), nil
	}}})
	work := []workItem{{Attempt: &compute.Attempt{Epoch: 1}, Execution: &compute.Execution{Epoch: 1}}}
	answers = []any{
		lost,
		pollAnswer{Index: 7, Digest: compute.Hash{7}, Work: work},
		lost,
		pollAnswer{Index: 9, Digest: compute.Hash{9}},
		pollAnswer{Index: 9, Digest: compute.Hash{9}},
	}
	for i, want := range []pollRequest{
		{Fresh: true},
		{Fresh: true},
		{After: 7, Digest: compute.Hash{7}},
		{After: 7, Digest: compute.Hash{7}},
		{After: 9, Digest: compute.Hash{9}},
	} {
		before, _ := own.Current()
		got, err := own.Work(t.Context(), 0)
		if asked != want {
			t.Errorf("poll %d asks %+v, want %+v", i, asked, want)
		}
		if now, _ := own.Current(); err != nil && len(now) != len(before) {
			t.Errorf("poll %d failed and changed what is known", i)
		}
		if err == nil && (got.Index < 7 || len(got.Work) != len(work)*int(9-got.Index)/2) {
			t.Errorf("poll %d gives %d attempts at %d", i, len(got.Work), got.Index)
		}
	}
	peer.ago = 2 * attempt.NodeTTL // Out of contact: everything is read again.
	answers = []any{pollAnswer{Index: 3, Digest: compute.Hash{9}, Life: 1}}
	got, err := own.Work(t.Context(), 0)
	if err != nil || !asked.Fresh || asked.Digest != (compute.Hash{}) {
		t.Errorf("after a silence it asks %+v, %v", asked, err)
	}
	if got.Index != 3 || got.Life != 1 {
		t.Errorf("in another life of the cluster the answer is %+v", got)
	}
}

// TestLeasesCountFromAContact holds that nothing begins on a worker that has not
// reached the leader before it polled, or may have been given up meanwhile.
func TestLeasesCountFromAContact(t *testing.T) {
	const first = time.Hour
	for _, test := range []struct {
		name                string
		before, after, want time.Duration
	}{
		{"none", 0, 0, 0},
		{"during the poll", 0, first, 0},
		{"none during the poll", first, first, first},
		{"heartbeats during a poll that was held", first, first + pollHold + pollMargin, first + pollHold + pollMargin},
		{"a long gap", first, first + attempt.Lease + attempt.Margin, 0},
	} {
		if got := contactOver(test.before, test.after); got != test.want {
			t.Errorf("%s: leases count from %v, want %v", test.name, got, test.want)
		}
	}
	peer := &quietPeer{never: true}
	own := NewAssignments(&polled{peer, &scripted{answer: func(_ string, req pollRequest) (pollAnswer, error) {
		if !req.Fresh {
			t.Errorf("without contact it asks %+v", req)
		}
		return pollAnswer{Index: 7}, nil
	}}})
	for _, step := range []struct{ never, begins bool }{{true, false}, {true, false}, {false, true}} {
		peer.never = step.never
		if got, err := own.Work(t.Context(), 0); err != nil || got.Contact != 0 != step.begins {
			t.Errorf("it may begin things: %v, %v", got.Contact != 0, err)
		}
	}
}

// oldServers know no method of a worker.
type oldServers struct{ scripted }

func (*oldServers) Call(context.Context, compute.NodeID, string, []byte) ([]byte, error) {
	return nil, compute.Errorf(compute.CodeNotFound, "This node has no such method.").Named(rpc.NoMethod)
}

// TestOldServersRefuseNothing holds that an outcome which no server understands
// yet is reported again: the executor forgets one that is refused.
func TestOldServersRefuseNothing(t *testing.T) {
	up := &oldServers{}
	if err := (Reporter{Up: up}).FinishAttempt(t.Context(), compute.Outcome{}); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("an outcome: %v", err)
	}
	if _, err := (Bundles{Up: up}).Bundle(t.Context(), compute.BundleRef{}); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("a bundle: %v", err)
	}
}

// polled is an Upstream whose contact is a quietPeer's.
type polled struct {
	*quietPeer
	*scripted
}

func (p *polled) ContactAt() time.Duration { return p.quietPeer.ContactAt() }

var _ edge.Relay = (*Relay)(nil)
