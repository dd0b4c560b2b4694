//go:build !race

package cluster_test

import "berth/cluster"

// testProfile is that of peers in tests.
const testProfile = cluster.ProfileLAN
