package attempt_test

import (
	"strings"
	"testing"
	"time"

	"berth/attempt"
	"berth/compute"
)

// TestVanished spells nodes: "u" is up, "d" drained and down, and a number is
// down since that second.
func TestVanished(t *testing.T) {
	const at = compute.Instant(1_000_000)
	tests := []struct {
		name  string
		nodes string
		brake compute.Brake
		want  int
	}{
		{"none", "", compute.Brake{}, 0},
		{"all up", "u,u,u", compute.Brake{}, 0},
		{"one of one", "0", compute.Brake{}, 0},
		{"one of two", "u,0", compute.Brake{}, 0},
		{"one of three dies", "u,u,0", compute.Brake{}, 0},
		{"two of three", "u,0,1", compute.Brake{}, 2},
		{"two of four", "u,u,0,1", compute.Brake{}, 2},
		{"two of five", "u,u,u,0,1", compute.Brake{}, 2},
		{"exactly a third", "u,u,u,u,0,1", compute.Brake{}, 0},
		{"within the window", "u,u,u,0,30", compute.Brake{}, 2},
		{"one after the other", "u,u,u,0,31", compute.Brake{}, 0},
		{"a chain is not at once", "u,u,u,u,u,u,0,25,50", compute.Brake{}, 0},
		{"the largest group", "u,u,0,100,110,120", compute.Brake{}, 3},
		{"the long dead do not count", "u,u,u,u,0,500,501", compute.Brake{}, 0},
		{"drained ones are expected to go", "u,u,d,d,d", compute.Brake{}, 0},
		{"released", "u,0,1", compute.Brake{ReleasedAt: at.Add(time.Second)}, 0},
		{"more after the release", "u,0,1,9,9", compute.Brake{ReleasedAt: at.Add(time.Second)}, 2},
		{"half, allowed", "u,u,0,1", compute.Brake{SharePercent: 50}, 0},
		{"more than half", "u,u,0,1,2", compute.Brake{SharePercent: 50}, 3},
		{"never", "0,0,0", compute.Brake{SharePercent: 100}, 0},
		{"no node is left", "0,0,0", compute.Brake{}, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var nodes []*compute.Node
			for i, word := range strings.FieldsFunc(test.nodes, func(r rune) bool { return r == ',' }) {
				n := &compute.Node{Name: word, ChangedAt: at}
				n.ID.UUID[15] = byte(i)
				switch word {
				case "u":
				case "d":
					n.State, n.Drained = compute.NodeDown, true
				default:
					since, err := time.ParseDuration(word + "s")
					if err != nil {
						t.Fatal(err)
					}
					n.State, n.ChangedAt = compute.NodeDown, at.Add(since)
				}
				nodes = append(nodes, n)
			}
			if got := attempt.Vanished(nodes, test.brake); len(got) != test.want {
				t.Errorf("%d nodes vanished at once, want %d", len(got), test.want)
			}
		})
	}
}
