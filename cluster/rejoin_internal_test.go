package cluster

import "testing"

// TestWhoCountsForARejoin is about the voters beside a damaged one.
func TestWhoCountsForARejoin(t *testing.T) {
	for _, test := range []struct {
		voters, current int
		may             bool
	}{
		{1, 0, false}, // It is the only one.
		{2, 1, false}, // What it acknowledged alone with the other counts.
		{3, 1, false},
		{3, 2, true},
		{4, 2, false},
		{4, 3, true},
		{5, 2, false}, // Two others are away, or rejoin too.
		{5, 3, true},  // One is.
		{5, 4, true},
	} {
		if err := refuseReadmission(test.voters, test.current, nil); (err == nil) != test.may {
			t.Errorf("%d of %d voters are intact: %v", test.current, test.voters, err)
		}
	}
}
