package cluster_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"berth/cluster"
	"berth/cluster/pki"
	"berth/compute"
)

// refusal opens a peer that should be refused and returns the error.
func (f *fleet) refusal(cfg cluster.Config) error {
	f.t.Helper()
	machine := newToyFSM()
	cfg.FSM, machine.refuse = machine, f.refuse
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	c, err := cluster.Open(ctx, cfg)
	if err == nil {
		c.Close()
		f.t.Fatal("the node was admitted")
	}
	if ctx.Err() != nil {
		f.t.Fatalf("the node went on trying: %v", err)
	}
	return err
}

func TestJoinIsRefusedWithAReason(t *testing.T) {
	f := mustFleet(t, 2, nil)
	other, err := pki.NewCA(rand.Reader, compute.UUID{1}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		token  func() pki.JoinToken
		reason string
	}{
		{"spent token", func() pki.JoinToken { return f.mustToken(compute.RoleServer, 0) }, "spent"},
		{"expired token", func() pki.JoinToken {
			token, err := f.peers[0].NewJoinToken()
			if err != nil {
				t.Fatal(err)
			}
			f.registry.add(token, compute.RoleServer, 1).expired = true
			return token
		}, "expired"},
		{"token for workers", func() pki.JoinToken { return f.mustToken(compute.RoleWorker, 1) }, "another role"},
		{"unknown token", func() pki.JoinToken {
			token, err := f.peers[0].NewJoinToken()
			if err != nil {
				t.Fatal(err)
			}
			return token
		}, "not known"},
		{"wrong secret", func() pki.JoinToken {
			token := f.mustToken(compute.RoleServer, 1)
			token.Secret = strings.Repeat("x", len(token.Secret))
			return token
		}, "not known"},
		{"wrong authority", func() pki.JoinToken {
			token := f.mustToken(compute.RoleServer, 1)
			token.Pin = other.Pin()
			return token
		}, "not the one that the join token names"},
	} {
		for _, asked := range f.peers { // The leader and a follower.
			t.Run(test.name+" at "+asked.cfg.Name, func(t *testing.T) {
				cfg := f.config("stranger")
				cfg.JoinHosts = []string{asked.RPCAddress()}
				cfg.JoinToken = test.token().String()
				if err := f.refusal(cfg); !strings.Contains(err.Error(), test.reason) {
					t.Errorf("refused because of %q, want %q", err, test.reason)
				}
			})
		}
	}
}

func TestOpenIsRefusedWithAReason(t *testing.T) {
	f := mustFleet(t, 1, nil)
	used := f.peers[0].cfg
	for _, test := range []struct {
		name   string
		edit   func(*cluster.Config)
		reason string
	}{
		{"neither bootstrap nor token", func(*cluster.Config) {}, "bootstrap"},
		{"both", func(c *cluster.Config) { c.Bootstrap, c.JoinToken = true, "x" }, "exclude"},
		{"no host", func(c *cluster.Config) { c.JoinToken = "x" }, "address"},
		{"malformed token", func(c *cluster.Config) {
			c.JoinToken, c.JoinHosts = "bjt_short", []string{"127.0.0.1:1"}
		}, "malformed"},
		{"directory in use", func(c *cluster.Config) { c.DataDir, c.Bootstrap = used.DataDir, true }, "Another process"},
		{"worker that makes a cluster", func(c *cluster.Config) {
			c.Role, c.Bootstrap = compute.RoleWorker, true
		}, "A worker cannot make a cluster"},
		{"no such role", func(c *cluster.Config) { c.Role = 7 }, "no such role"},
		{"long name", func(c *cluster.Config) { c.Name = strings.Repeat("n", 65) }, "name"},
		{"unknown profile", func(c *cluster.Config) { c.Profile = "wan" }, "profile"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := f.config("faulty")
			test.edit(&cfg)
			if err := f.refusal(cfg); !strings.Contains(err.Error(), test.reason) {
				t.Errorf("refused because of %q, want %q", err, test.reason)
			}
		})
	}
}

func TestATokenAdmitsOneNodeOnce(t *testing.T) {
	secrets := []byte("the master key")
	var got []byte
	f := newFleet(t, func(c *cluster.Config) {
		c.ServerSecrets = func() []byte { return secrets }
		c.Accept = func(_ compute.UUID, s []byte) error { got = s; return nil }
	})
	f.mustAdd()
	token := f.mustToken(compute.RoleServer, 1)
	cfg := f.config("n2")
	cfg.NodeID = newID()
	cfg.JoinHosts, cfg.JoinToken = []string{"127.0.0.1:1", f.peers[0].RPCAddress()}, token.String()
	// The first try fails after the admission but before it was saved. The same
	// node may then retry with its token.
	failed := errors.New("the disk is full")
	cfg.Accept = func(compute.UUID, []byte) error { return failed }
	if err := f.refusal(cfg); !errors.Is(err, failed) {
		t.Fatalf("open gives %v", err)
	}
	// Another node with the stolen token and the node's id does not have its
	// key.
	thief := f.config("thief")
	thief.NodeID, thief.JoinHosts, thief.JoinToken = cfg.NodeID, cfg.JoinHosts, cfg.JoinToken
	if err := f.refusal(thief); !strings.Contains(err.Error(), "spent") {
		t.Errorf("somebody else in its name: %v", err)
	}
	// The node has no vote before it keeps up, so the cluster continues without
	// it.
	f.peers[0].mustPropose(t, toyCommand{Op: "without n2", Key: "k", Value: 1})
	f.edit(&cfg)
	p := f.mustStart(cfg)
	f.peers = append(f.peers, p)
	f.awaitVoters(2)
	if string(got) != string(secrets) {
		t.Errorf("the new server was handed %q", got)
	}
	if p.CA().Key == nil {
		t.Error("the new server has no key of the authority")
	}
	again := f.config("n3")
	again.JoinHosts, again.JoinToken = []string{f.peers[0].RPCAddress()}, token.String()
	if err := f.refusal(again); !strings.Contains(err.Error(), "spent") {
		t.Errorf("another node with the token: %v", err)
	}
}

func TestRaftPortIsForServersOfTheCluster(t *testing.T) {
	log := new(words)
	f := mustFleet(t, 2, func(c *cluster.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	target := f.leader()
	p := f.follower(target)
	foreign, err := pki.NewCA(rand.Reader, p.ClusterID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		ca     *pki.CA
		role   compute.Role
		reason string
	}{
		{"server", p.CA(), compute.RoleServer, ""},
		{"certificate of role worker", p.CA(), compute.RoleWorker, "berth admin token create --role server"},
		{"wrong authority", foreign, compute.RoleServer, "copy ca.crt"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := p.Present(test.ca, test.role); err != nil {
				t.Fatal(err)
			}
			conn, err := p.DialRaft(target.ID())
			if err == nil {
				conn.Close()
			}
			if test.reason == "" && err != nil || test.reason != "" && (err == nil || !strings.Contains(err.Error(), test.reason)) {
				t.Errorf("got %v, want %q", err, test.reason)
			}
		})
	}
	if err := p.Present(p.CA(), compute.RoleServer); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the one that was asked to say what to do", func() bool {
		return log.say("the machine there is of another cluster than this one") && log.say("copy ca.crt")
	})
}

func TestRemovedNodeIsShutOut(t *testing.T) {
	f := mustFleet(t, 3, nil)
	leader := f.leader()
	gone := f.follower(leader)
	f.registry.remove(gone.ID())
	eventually(t, "the node leaves the configuration", func() bool { return len(leader.Servers()) == 2 })
	eventually(t, "the node is told", func() bool {
		_, err := gone.Call(t.Context(), leader.ID(), "cluster.status", nil)
		return err != nil && strings.Contains(err.Error(), "removed")
	})
	select {
	case <-gone.done:
	case <-time.After(patience):
		t.Fatal("Run goes on")
	}
	if err := gone.stop(); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("Run ended with %v", err)
	}
	leader.mustPropose(t, toyCommand{Op: "without", Key: "k", Value: 1})
}

func TestWithoutCertificateOnlyJoinMayBeCalled(t *testing.T) {
	f := mustFleet(t, 1, nil)
	call := func(method string, request []byte) error {
		t.Helper()
		client := mustAnonymous(t, f.leader()) // One makes few calls on a connection.
		defer client.Close()
		_, err := client.Call(t.Context(), method, request)
		return err
	}
	for _, method := range []string{"cluster.propose", "cluster.status", "cluster.heartbeat", "cluster.inventory"} {
		err := call(method, nil)
		if compute.CodeOf(err) != compute.CodeUnauthenticated {
			t.Errorf("%s: %v", method, err)
		}
	}
	limited := false
	for n := 0; n < 400 && !limited; n++ {
		err := call("cluster.join", []byte("garbage"))
		if code := compute.CodeOf(err); code == compute.CodeRateLimited {
			limited = true
		} else if code != compute.CodeInvalid {
			t.Errorf("garbage: %v", err)
		}
	}
	if !limited {
		t.Error("tries to join are not limited")
	}
}
