//go:build verifyleader

package cluster

import "context"

// confirmLeader is the control of the test of stale reads, and nothing else:
// it asks raft, which counts acknowledgements that were sent before the
// question. The test must fail with it:
//
//	go test -tags verifyleader -run TestReadsAreNotStale ./cluster
func (c *Cluster) confirmLeader(context.Context, uint64) error {
	return c.raft.VerifyLeader().Error()
}
