package state

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsBehindAStallAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enough := make(chan struct{})
		w := &writing{clock: time.Now, slots: make(chan struct{}, 1)}
		w.change = func(_ context.Context, i int) error {
			switch i {
			case 0:
				<-time.After(10 * writeEvery)
			case 10:
				close(enough)
			}
			return nil
		}
		if err := w.run(t.Context(), enough); err != nil {
			t.Fatal(err)
		}
		if len(w.answered) != 11 {
			t.Fatalf("%d were answered, want 11", len(w.answered))
		}
		for i, got := range w.answered {
			if want := time.Duration(10-i) * writeEvery; got.took != want {
				t.Errorf("request %d took %v since it was due, want %v", i, got.took, want)
			}
		}
	})
}

func TestTheFirstFailureEndsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		w := &writing{clock: time.Now, slots: make(chan struct{}, 1)}
		w.change = func(_ context.Context, i int) error {
			if i == 3 {
				return refused
			}
			return nil
		}
		err := w.run(t.Context(), nil)
		if !errors.Is(err, refused) || !strings.HasPrefix(err.Error(), "request 3: ") || len(w.answered) != 3 {
			t.Errorf("%v after %d answers", err, len(w.answered))
		}
	})
}

func TestRequestsInASnapshotAreToldApart(t *testing.T) {
	begun := time.UnixMilli(1_000_000)
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	seen := &watch{written: []snapshot{{begun: at(10), done: at(20)}}, open: &snapshot{begun: at(40)}}
	w := &writing{}
	for i := range 50 {
		w.answered = append(w.answered, request{due: at(i), took: time.Duration(i) * time.Millisecond})
	}
	slices.Reverse(w.answered)
	got := w.report(seen)
	if got.InSnapshot.Requests != 20 || got.InSnapshot.Late.P50MS != 19 || got.InSnapshot.Late.MaxMS != 49 {
		t.Errorf("in snapshots: %+v", got.InSnapshot)
	}
	if got.Otherwise.Requests != 30 || got.Otherwise.Late.P50MS != 24 || got.Otherwise.Late.MaxMS != 39 {
		t.Errorf("otherwise: %+v", got.Otherwise)
	}
	if got.Requests != 50 || got.Snapshots != 1 || got.SnapshotS != 10 || got.LastedS != 49.049 {
		t.Errorf("all: %+v", got)
	}
}
