package node_test

import (
	_ "berth/node/executor/early" // First: supervisors are this binary executed again.

	"testing"

	"berth/node/nodetest"
)

func TestMain(m *testing.M) { nodetest.Main(m) }
