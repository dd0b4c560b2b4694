package node

import (
	"testing"
	"time"

	"berth/compute"
)

func TestOverdueIsGraceAndMargin(t *testing.T) {
	work := func(grace time.Duration) compute.Work {
		return compute.Work{
			Attempt:   &compute.Attempt{Epoch: uint64(grace / time.Second)},
			Execution: &compute.Execution{DisconnectGrace: grace},
		}
	}
	all := []compute.Work{work(time.Second), work(10 * time.Minute)} // A second counts as the least grace.
	tests := []struct {
		name   string
		silent time.Duration
		want   []uint64 // Epochs, which are the graces in seconds.
	}{
		{"within the margin of the shortest", 25 * time.Second, nil},
		{"past the shortest", 26 * time.Second, []uint64{1}},
		{"at the longest grace", 10 * time.Minute, []uint64{1}},
		{"past all", 11 * time.Minute, []uint64{1, 600}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := overdue(all, test.silent)
			if len(got) != len(test.want) {
				t.Fatalf("got %v, want epochs %v", got, test.want)
			}
			for i, ref := range got {
				if ref.Epoch != test.want[i] {
					t.Errorf("got epoch %d, want %d", ref.Epoch, test.want[i])
				}
			}
		})
	}
}

func TestRootTokenIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := rootToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := rootToken(dir)
	if err != nil || again != first || len(first) < 40 {
		t.Errorf("got %q and %q (%v), want one long token", first, again, err)
	}
	other, err := rootToken(t.TempDir())
	if err != nil || other == first {
		t.Errorf("two clusters have the token %q (%v)", other, err)
	}
}
