//go:build long

package scheduler_test

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var historySeed = flag.Uint64("history.seed", 0, "check the history of this seed alone, as a failure names it")

// TestPackKeepsItsRulesInNewHistories takes other seeds each time.
func TestPackKeepsItsRulesInNewHistories(t *testing.T) {
	if *historySeed != 0 {
		keepsRules(t, *historySeed)
		return
	}
	for range 3000 {
		keepsRules(t, rand.Uint64())
	}
}
