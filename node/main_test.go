package node_test

import (
	"testing"

	"berth/node/executor/docker"
	_ "berth/node/executor/early" // First: supervisors are this binary executed again.
	"berth/node/executor/mount"
	"berth/node/nodetest"
)

func TestMain(m *testing.M) {
	docker.TakeOver()
	mount.TakeOver()
	nodetest.Main(m)
}
