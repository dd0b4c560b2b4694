//go:build race

package cluster_test

import "berth/cluster"

// testProfile is that of peers in tests: the race detector makes a process so
// slow that a leader is not heard for 300 ms, so its timers are the library's,
// more than three times those of the LAN profile.
const testProfile = cluster.ProfileDefault
