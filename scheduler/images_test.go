package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	"berth/compute"
	"berth/scheduler"
)

// TestPackPrefersNodesWithTheImages holds that of nodes that are as good the one with the
// images is chosen, and that no other node is chosen for them.
func TestPackPrefersNodesWithTheImages(t *testing.T) {
	long := strings.Repeat("registry.example.org/", 10) + "train:1"
	with := func(n *compute.Node, refs ...string) *compute.Node {
		return edited(n, func(n *compute.Node) {
			for _, ref := range refs {
				n.Offers = append(n.Offers, compute.ImageOffer(ref))
			}
			n.Offers = append(n.Offers, compute.VolumeOffer("sets"))
		})
	}
	t4 := func(n int, refs ...string) *compute.Node { return with(gpuNode(n, "t4", 1), refs...) }
	tests := []struct {
		name   string
		nodes  []*compute.Node
		images []string
		avoid  []int
		want   string
	}{
		{"no image", []*compute.Node{t4(1), t4(2, "a")}, nil, nil, "[1@n1[0]]"},
		{"nowhere", []*compute.Node{t4(1), t4(2, "b")}, []string{"a"}, nil, "[1@n1[0]]"},
		{"on the second", []*compute.Node{t4(1), t4(2, "a"), t4(3, "a")}, []string{"a"}, nil, "[1@n2[0]]"},
		{"a long name", []*compute.Node{t4(1), t4(2, long)}, []string{long}, nil, "[1@n2[0]]"},
		{"all of them", []*compute.Node{t4(1, "a"), t4(2, "b"), t4(3, "a", "b")}, []string{"b", "a"}, nil, "[1@n3[0]]"},
		{"where it did not start", []*compute.Node{t4(1), t4(2, "a"), t4(3)}, []string{"a"}, []int{2}, "[1@n1[0]]"},
		{"on a busy node", []*compute.Node{t4(1), used(t4(2, "a"), 8, 64, 1000)}, []string{"a"}, nil, "[1@n1[0]]"},
		{"on a worse node", []*compute.Node{t4(1), with(gpuNode(2, "t4", 4), "a")}, []string{"a"}, nil, "[1@n1[0]]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.nodes...)
			e := execution(1, whole("t4", 1))
			e.Request.Needs = []compute.Offer{compute.VolumeOffer("sets")}
			e.Container = &compute.Container{Images: test.images}
			for _, n := range test.avoid {
				e.Avoid = append(e.Avoid, nodeID(n))
			}
			w.submit(e)
			view := w.view()
			if got := fmt.Sprint(where(view, scheduler.Pack(view))); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
