package storage

import (
	"bytes"
	"errors"
	"testing"

	"berth/compute"
)

func TestSpreadIsOnAllThatAreUp(t *testing.T) {
	for _, test := range []struct {
		name           string
		down, refusing int // How many of five.
		least, copies  int
		code           compute.Code
	}{
		{name: "all are up", least: 3, copies: 5},
		{name: "two are down", down: 2, least: 3, copies: 3},
		{name: "two refuse", refusing: 2, least: 3, copies: 3},
		{name: "three are down", down: 3, least: 3, copies: 2, code: compute.CodeUnavailable},
		{name: "two are down, one refuses", down: 2, refusing: 1, least: 3, copies: 2, code: compute.CodeUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, 5, 2)
			for i := range test.down {
				c.list[4-i].Up = false
			}
			for i := range test.refusing {
				c.fault[nodeID(1+i)] = refuse
			}
			hash, err := c.nodes[nodeID(0)].Spread(t.Context(), []byte("an archive"), test.least)
			if got := len(c.have(hash)); got != test.copies || compute.CodeOf(err) != test.code && err != nil || (err != nil) != (test.code != "") {
				t.Errorf("%d copies, %v; want %d, code %q", got, err, test.copies, test.code)
			}
		})
	}
}

// TestKeepBringsWhatIsMissing holds that a server that was down, or whose copy
// was damaged, has the blob afterwards.
func TestKeepBringsWhatIsMissing(t *testing.T) {
	c := newCluster(t, 3, 1)
	data := []byte("an archive")
	c.list[2].Up = false
	hash, err := c.nodes[nodeID(0)].Spread(t.Context(), data, 2)
	if err != nil {
		t.Fatal(err)
	}
	c.list[2].Up = true
	for range 2 {
		if err := c.nodes[nodeID(2)].Keep(t.Context(), hash); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.nodes[nodeID(2)].cfg.Store.Get(hash); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the server that was down has %q, %v", got, err)
	}
	err = c.nodes[nodeID(2)].Keep(t.Context(), compute.Hash{1})
	if compute.CodeOf(err) != compute.CodeNotFound || errors.Is(err, ErrCorrupt) {
		t.Errorf("a blob that nobody has: %v, want not_found", err)
	}
}
