package cluster

import "testing"

// TestWhoCountsForARejoin checks how many voters besides a damaged one suffice.
func TestWhoCountsForARejoin(t *testing.T) {
	for _, test := range []struct {
		voters, current int
		may             bool
	}{
		{1, 0, false}, // It is the only voter.
		{2, 1, false}, // The two of them alone may have acknowledged entries.
		{3, 1, false},
		{3, 2, true},
		{4, 2, false},
		{4, 3, true},
		{5, 2, false}, // Two others are away or rejoin too.
		{5, 3, true},  // One is away.
		{5, 4, true},
	} {
		if err := refuseReadmission(test.voters, test.current, nil); (err == nil) != test.may {
			t.Errorf("%d of %d voters are intact: %v", test.current, test.voters, err)
		}
	}
}
