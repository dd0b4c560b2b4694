package gossip

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/loop"
)

// TestNodeInTwoPlaces announces a node at a second address while it announces itself
// at the first: the log has a hint for the operator, but not each time.
func TestNodeInTwoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := New(Config{
			Codec: rpc.NewCodec(), Logger: slog.New(slog.NewTextHandler(&log, nil)), Alive: prometheus.NewGauge(prometheus.GaugeOpts{}),
		})
		d, id := (*delegate)(g), compute.NodeID{UUID: compute.UUID{1}}
		at := func(rpc string) *memberlist.Node {
			return &memberlist.Node{Name: id.String(), Meta: g.cfg.Codec.Marshal(meta{RPC: rpc})}
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
				if loop.Sleep(t.Context(), claimRepeat) {
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
			if got := g.ClaimedAddress(id); got != step.claimed {
				t.Errorf("%s: it is claimed to be at %q", step.name, got)
			}
		}
	})
}

// TestStrangersAreRefused offers nodes to gossip.
func TestStrangersAreRefused(t *testing.T) {
	member, gone := compute.NodeID{UUID: compute.UUID{1}}, compute.NodeID{UUID: compute.UUID{2}}
	g := New(Config{Codec: rpc.NewCodec(), Lookup: func(id compute.NodeID) (removed, known bool) {
		return id == gone, id == member || id == gone
	}})
	for _, test := range []struct {
		name    string
		refused bool
	}{
		{member.String(), false},
		{gone.String(), true},
		{compute.NodeID{UUID: compute.UUID{3}}.String(), true},
		{"not an id", true},
	} {
		err := (*delegate)(g).NotifyAlive(&memberlist.Node{Name: test.name, Meta: g.cfg.Codec.Marshal(meta{Name: "a"})})
		if errors.Is(err, errStranger) != test.refused {
			t.Errorf("%s: %v, want refused %t", test.name, err, test.refused)
		}
	}
}

func TestKeyringIsChecked(t *testing.T) {
	for _, text := range []string{
		"", "{}", `{"keys":[]}`, `{"keys":["c2hvcnQ="]}`,
		`{"keys":[` + strings.Repeat(`"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",`, 8) + `"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}`,
	} {
		if keys, err := parseKeyring([]byte(text)); err == nil {
			t.Errorf("%s: %d keys", text, len(keys))
		}
	}
}

// FuzzDelegate gives a node any messages that another one with the gossip key may send:
// announcements and inventories. No node that the cluster does not know may enter.
func FuzzDelegate(f *testing.F) {
	codec := rpc.NewCodec()
	known, stranger := compute.NodeID{UUID: compute.UUID{1}}, compute.NodeID{UUID: compute.UUID{2}}
	body := codec.Marshal(compute.Inventory{Node: known, Version: 3, GPUs: []compute.GPU{{ID: "a"}}})
	announced := codec.Marshal(meta{Name: "n", RPC: "a:1", InventoryVersion: 3, InventoryHash: hashOf(body)})
	f.Add(known.String(), announced, body)
	f.Add(stranger.String(), announced, body)
	f.Add("nobody", []byte{}, body[:5])
	f.Add(known.String(), []byte{0xbf, 0xff}, []byte{0x9f, 0xff})
	f.Add(known.String(), []byte{0xa1, 0x01, 0x7b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, bytes.Repeat([]byte{0x81}, 100))
	f.Fuzz(func(t *testing.T, name string, announced, body []byte) {
		g := New(Config{
			Codec: codec, Logger: slog.New(slog.DiscardHandler), Alive: prometheus.NewGauge(prometheus.GaugeOpts{}),
			Lookup: func(id compute.NodeID) (removed, is bool) { return false, id == known },
		})
		g.id.Node = compute.NodeID{UUID: compute.UUID{3}}
		d := (*delegate)(g)
		n := &memberlist.Node{Name: name, Meta: announced}
		if d.NotifyAlive(n) == nil {
			d.NotifyJoin(n)
			d.NotifyUpdate(n)
		}
		d.NotifyConflict(nil, n)
		d.MergeRemoteState(body, true)
		d.NotifyLeave(n)
		for _, m := range g.Members() {
			if m.ID != known && m.ID != g.id.Node && m.Alive {
				t.Errorf("%q made %s a member", name, m.ID)
			}
			if _, has := g.Inventory(m.ID); has && m.ID != known {
				t.Errorf("%q gave %s an inventory", name, m.ID)
			}
		}
	})
}
