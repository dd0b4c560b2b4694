package node_test

import (
	"testing"

	_ "berth/node/executor/early" // First: supervisors are this binary executed again.
	"berth/node/nodetest"
)

func TestMain(m *testing.M) { nodetest.Main(m) }
