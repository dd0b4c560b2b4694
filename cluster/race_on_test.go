//go:build race

package cluster_test

import "berth/cluster"

// testProfile is the timer profile of peers in tests. The race detector makes a
// process so slow that a leader can be silent for 300 ms. The library's timers
// are more than three times those of the LAN profile.
const testProfile = cluster.ProfileDefault
