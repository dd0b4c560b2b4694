//go:build long

package exhaustion_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"berth/loop"
	_ "berth/node/executor/early" // First: supervisors are this binary executed again.
	"berth/node/nodetest"
)

func TestMain(m *testing.M) { nodetest.Main(m) }

// Bounds of each class. The time is what no busy machine exceeds; whether the
// promised second held is printed.
const (
	growthLimit = 128 << 20
	answerLimit = 30 * time.Second
	promised    = time.Second

	attackTime = 10 * time.Second
	afterTime  = 3 * time.Second // For what nodes do once the attackers have hung up.
)

// heapProfiles is the directory for heap profiles of nodes.
var heapProfiles = flag.String("profiles", "", "`directory` for a heap profile of each node under each attack")

// class is one way to exhaust nodes.
type class struct {
	name   string
	attack func(ctx context.Context, a *attacker) // Ends with ctx.
}

func classes() []class {
	return []class{
		{"strangers at the cluster port announce more than they send", claimAtPort},
		{"handshakes with the cluster port that do not go on", holdHandshakes},
		{"log lines by strangers at every port", sendGarbage},
		{"idle connections and malformed requests", idleAndMalformed},
		{"bodies without a credential", bodiesOfStrangers},
		{"bodies of one key", bodiesOfKey},
		{"bodies of one key through a worker", bodiesThroughWorker},
		{"sign-ins with right and wrong passwords", signIns},
		{"refresh requests of 8 KiB", refreshes},
		{"answers to strangers that are never read", unreadDocuments},
		{"large answers of one key that are never read", largeAnswersUnread},
		{"large answers of one key", largeAnswers},
		{"long lists that are never read", listsUnread},
		{"history scans", historyScans},
		{"refused starts with large bundles", refusedStarts},
		{"refused starts through a worker", refusedStartsRelayed},
		{"output streams of one key, and hang-ups", outputStreams},
		{"output streams through a worker, and hang-ups", outputStreamsRelayed},
	}
}

// TestNodesStayBounded attacks a cluster of three servers and a worker, one class
// after the other. The memory of every process stays within growthLimit of that of
// the idle cluster, and each node answers another organization all the time.
func TestNodesStayBounded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as a node does")
	}
	v := mustVictims(t)
	fresh, term := v.settle(t), v.mustStand(t)
	for _, class := range classes() {
		t.Run(class.name, func(t *testing.T) {
			start := v.settle(t)
			watch := v.watch(t)
			ctx, cancel := context.WithTimeout(t.Context(), attackTime)
			class.attack(ctx, &attacker{v})
			<-ctx.Done()
			cancel()
			loop.Sleep(t.Context(), afterTime)
			seen := watch.end()
			elections := v.mustStand(t) - term
			term += elections
			worst, grown := 0, int64(0)
			for i, peak := range seen.peaks {
				if g := int64(peak) - int64(fresh[i]); g > grown {
					worst, grown = i, g
				}
			}
			kept := "kept"
			if seen.slowest > promised {
				kept = "not kept"
			}
			t.Logf("measured: %s: %s grew by %d MiB, from %d, %d of them before; "+
				"the slowest answer to others took %d ms, from %s (1 s is %s); %d elections",
				class.name, v.nodes[worst].Config.Name, grown>>20, fresh[worst]>>20,
				max(int64(start[worst])-int64(fresh[worst]), 0)>>20, seen.slowest.Milliseconds(), seen.slow, kept, elections)
			if grown > growthLimit {
				t.Errorf("node %s grew by %d MiB", v.nodes[worst].Config.Name, grown>>20)
			}
			if seen.slowest > answerLimit || seen.failed != nil {
				t.Errorf("an honest client waited for %v: %v", seen.slowest, seen.failed)
			}
		})
	}
}
