package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/memberlist"
)

// TestNodeInTwoPlaces has a node be said to be at another address, too, while it
// goes on to say what it has: the log says what to do, and not each time.
func TestNodeInTwoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := newCluster(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults())
		d, id := (*gossipDelegate)(c.gossip), letter('B')
		at := func(rpc string) *memberlist.Node {
			return &memberlist.Node{Name: id.String(), Meta: c.codec.Marshal(gossipMeta{RPC: rpc})}
		}
		for _, step := range []struct {
			name    string
			happens func()
			says    int
			claimed string
		}{
			{"it is there", func() { d.NotifyJoin(at("a:1")) }, 0, ""},
			{"it is elsewhere, too", func() { d.NotifyConflict(nil, at("b:1")) }, 1, "b:1"},
			{"it has something else", func() { d.NotifyUpdate(at("a:1")) }, 0, "b:1"},
			{"it is elsewhere still", func() { d.NotifyConflict(nil, at("b:1")) }, 0, "b:1"},
			{"it is at a third place", func() { d.NotifyConflict(nil, at("c:1")) }, 1, "c:1"},
			{"it stays in two places", func() {
				if err := pause(t.Context(), claimRepeat); err == nil {
					d.NotifyConflict(nil, at("c:1"))
				}
			}, 1, "c:1"},
			{"it does not say where", func() { d.NotifyConflict(nil, at("")) }, 0, "c:1"},
			{"it has moved there", func() { d.NotifyUpdate(at("c:1")) }, 0, ""},
		} {
			log.Reset()
			step.happens()
			if said := strings.Count(log.String(), "a join token of its own"); said != step.says {
				t.Errorf("%s: it is told %d times what to do: %s", step.name, said, log.String())
			}
			if got := c.gossip.claimedAddress(id); got != step.claimed {
				t.Errorf("%s: it is claimed to be at %q", step.name, got)
			}
		}
	})
}
