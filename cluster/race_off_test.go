//go:build !race

package cluster_test

import "berth/cluster"

// testProfile is the timer profile of peers in tests.
const testProfile = cluster.ProfileLAN
