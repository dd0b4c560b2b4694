package node_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/cluster/pki"
	"berth/compute"
	"berth/node"
	"berth/node/config"
	"berth/node/nodetest"
	"berth/node/repair"
)

// mustRefuse opens a node that is to be refused, and fails unless the reason says
// all of the words.
func mustRefuse(t *testing.T, cfg config.Config, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := node.Open(ctx, cfg, node.Options{
		Version: "test", Ballast: -1, Logger: config.NewLogger(cfg.Log, t.Output()), Fatal: func(err error) { t.Error(err) },
	})
	if err == nil {
		t.Errorf("it was opened: %v", n.Close())
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it is refused with %q, want %q in it", err, word)
		}
	}
}

// TestHostileInputSaysWhatToDo gives real nodes what people and other machines give
// them by mistake or in bad faith. Each is refused, and the reason says what to do.
func TestHostileInputSaysWhatToDo(t *testing.T) {
	t.Parallel() // It mostly waits.
	c, other := nodetest.New(t, 1), nodetest.New(t, 1)
	first, theirs := c.Nodes[0], other.Nodes[0]
	root := nodetest.MustClient(t, c.RootToken, first.URL())
	token := func(role string, ttl int) wire.JoinToken {
		t.Helper()
		made, err := root.CreateJoinToken(t.Context(), wire.NewJoinToken{Role: role, TTL: ttl, Uses: 1})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	joiner := func(token string) config.Config {
		t.Helper()
		cfg := nodetest.Config(t, 1)
		cfg.Join.Hosts, cfg.Join.TokenFile = []string{first.Peer().RPCAddress()}, filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(cfg.Join.TokenFile, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	short, once := token("server", 1), token("server", 600)

	t.Run("a token of another cluster", func(t *testing.T) {
		mustRefuse(t, joiner(nodetest.MustJoinToken(t, theirs.URL(), other.RootToken)),
			"not the one that the join token names", "berth admin token create")
	})
	t.Run("a token that nobody made", func(t *testing.T) {
		ca := first.Peer().Cluster().CA()
		forged, err := pki.NewJoinToken(rand.Reader, ca)
		if err != nil {
			t.Fatal(err)
		}
		mustRefuse(t, joiner(forged.String()), "not known to this cluster", "berth admin token create")
	})
	t.Run("a token for workers", func(t *testing.T) {
		mustRefuse(t, joiner(token("worker", 600).Token), "for the role worker, not server", "berth admin token create --role server")
	})
	t.Run("a token for servers", func(t *testing.T) {
		cfg := joiner(token("server", 600).Token)
		cfg.Role = compute.RoleWorker.String()
		mustRefuse(t, cfg, "for the role server, not worker", "berth admin token create --role worker")
	})

	mustJoinThoughOff(t, c, joiner(once.Token), -time.Hour)
	t.Run("a token that was used", func(t *testing.T) {
		mustRefuse(t, joiner(once.Token), "has been used up", "berth admin token create")
	})
	t.Run("a token that has expired", func(t *testing.T) {
		nodetest.Eventually(t, time.Minute, "it to expire", func() bool {
			return compute.InstantOf(time.Now()) > short.ExpiresAt
		})
		mustRefuse(t, joiner(short.Token), "the join token expired at", "berth admin token create")
	})

	backup := mustSave(t, nodetest.MustClient(t, other.RootToken, theirs.URL()))
	ours := mustSave(t, root)
	alone := theirs.Config
	theirs.Stop()
	keep := t.TempDir()
	in := func(elem ...string) string { return filepath.Join(append([]string{alone.DataDir}, elem...)...) }
	// Its images are sparse; a copy of them takes gigabytes.
	if err := os.RemoveAll(in("scratch")); err != nil {
		t.Fatal(err)
	}
	mustReplace(t, alone.DataDir, keep)
	t.Run("a backup of another cluster", func(t *testing.T) {
		_, err := repair.RestoreBackup(ours, alone.DataDir, true, time.Now())
		if err == nil || !strings.Contains(err.Error(), "use the data directory of a server of the former") {
			t.Errorf("restored: %v", err)
		}
	})
	t.Run("a file that is no backup", func(t *testing.T) {
		text, err := os.ReadFile(backup)
		if err != nil {
			t.Fatal(err)
		}
		cut := filepath.Join(t.TempDir(), "cut")
		if err := os.WriteFile(cut, text[:len(text)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := repair.RestoreBackup(cut, alone.DataDir, true, time.Now()); err == nil {
			t.Error("half of one was restored")
		}
	})
	for _, test := range []struct {
		name  string
		put   func() error
		words []string
	}{
		{
			name: "the snapshots of another cluster",
			put: func() error {
				// As a restore makes them: a state, and no log behind it.
				_, err := repair.RestoreBackup(ours, first.Config.DataDir, false, time.Now())
				if err == nil || !strings.Contains(err.Error(), "stop it first") {
					return errors.New("a node that runs was restored")
				}
				return putForeignSnapshot(t, ours, c, alone.DataDir)
			},
			words: []string{"holds a replica of cluster " + first.Peer().View().ClusterID().String(), "put back the directory"},
		},
		{
			name:  "a peers file that was left",
			put:   func() error { return os.WriteFile(in("raft", "peers.json"), []byte("[]"), 0o600) },
			words: []string{"peers.json", "is not used: remove it", "berth admin raft recover"},
		},
		{
			name: "an authority of another cluster",
			put: func() error {
				theirs := os.DirFS(filepath.Join(first.Config.DataDir, "pki"))
				return errors.Join(os.RemoveAll(in("pki")), os.CopyFS(in("pki"), theirs))
			},
			words: []string{"is of cluster", "copy ca.crt"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.put(); err != nil {
				t.Fatal(err)
			}
			mustRefuse(t, alone, test.words...)
			mustReplace(t, keep, alone.DataDir)
		})
	}
	theirs.Start()
}

// mustReplace puts a copy of a directory in the place of another one.
func mustReplace(t *testing.T, from, to string) {
	t.Helper()
	err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from)), filepath.WalkDir(to,
		func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			return os.Chmod(path, 0o600) // As keys have to be.
		}))
	if err != nil {
		t.Fatal(err)
	}
}

// putForeignSnapshot has a server that is alone hold the state of a backup of
// another cluster, as if its snapshots had been copied.
func putForeignSnapshot(t *testing.T, backup string, c *nodetest.Cluster, dir string) error {
	t.Helper()
	source, running := t.TempDir(), c.Nodes[0].Config.DataDir
	mustReplace(t, filepath.Join(running, "pki"), filepath.Join(source, "pki"))
	record, err := os.ReadFile(filepath.Join(running, "node.json"))
	if err := errors.Join(err, os.WriteFile(filepath.Join(source, "node.json"), record, 0o600)); err != nil {
		return err
	}
	if _, err := repair.RestoreBackup(backup, source, true, time.Now()); err != nil {
		return err
	}
	snapshots := filepath.Join(dir, "raft", "snapshots")
	return errors.Join(os.RemoveAll(snapshots), os.CopyFS(snapshots, os.DirFS(filepath.Join(source, "raft", "snapshots"))))
}

// mustJoinThoughOff has a machine join whose clock is off, and stay to the end of
// the test: it works, and the operator is warned.
func mustJoinThoughOff(t *testing.T, c *nodetest.Cluster, cfg config.Config, shift time.Duration) {
	t.Helper()
	n, err := node.Open(t.Context(), cfg, node.Options{
		Version: "test", Ballast: -1, Logger: config.NewLogger(cfg.Log, t.Output()), Fatal: func(err error) { t.Error(err) },
		Now: func() time.Time { return time.Now().Add(shift) }, PromoteAfter: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- errors.Join(n.Run(ctx), n.Close()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	root := nodetest.MustClient(t, c.RootToken, n.URL()) // Any node tells it.
	nodetest.Eventually(t, time.Minute, "the operator to be told of the clock", func() bool {
		nodes, err := root.Nodes(t.Context())
		for _, shown := range nodes {
			if shown.ID == n.ID() && shown.ClockAhead != nil {
				ahead := time.Duration(*shown.ClockAhead) * time.Millisecond
				return err == nil && !compute.ClockOff(ahead-shift)
			}
		}
		return false
	})
	user := wire.NewUser{Email: "off@example.com", Password: "correct horse battery", OrgSlug: "off", OrgName: "off"}
	if _, err := root.CreateUser(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	session, err := root.WithToken("").Login(t.Context(), user.Email, user.Password)
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{n.URL(), c.Nodes[0].URL()} { // Its tokens are valid on all nodes.
		if _, err := nodetest.MustClient(t, session.AccessToken, url).Credits(t.Context()); err != nil {
			t.Errorf("with a login at the node whose clock is off, at %s: %v", url, err)
		}
	}
	mustLeadThoughOff(t, root, n)
}

// mustLeadThoughOff has a server lead whose clock is off: a join token counts and a
// drain ends when they should.
func mustLeadThoughOff(t *testing.T, root *client.Client, n *node.Node) {
	t.Helper()
	nodetest.Eventually(t, time.Minute, "the server whose clock is off to lead", func() bool {
		to, err := root.TransferLeadership(t.Context(), n.ID())
		return err == nil && to.Leader == n.ID()
	})
	const within = 10 * time.Minute
	if _, err := root.CreateJoinToken(t.Context(), wire.NewJoinToken{Role: "worker", TTL: 600, Uses: 1}); err != nil {
		t.Errorf("with a token made then: %v", err)
	}
	drained, err := root.DrainNodeWithin(t.Context(), n.ID(), within)
	if err != nil || drained.DrainBy == nil || compute.ClockOff(time.Until(drained.DrainBy.Time())-within) {
		t.Errorf("a drain of %s ends at %s, %v", within, drained.DrainBy, err)
	}
	before := n.View().Now()
	nodetest.Eventually(t, time.Minute, "the time to go on in the state", func() bool {
		_, err := root.DrainNode(t.Context(), n.ID(), false)
		return err == nil && n.View().Now() > before
	})
	if now := n.View().Now(); compute.ClockOff(time.Since(now.Time())) {
		t.Errorf("the state's time is %s", now)
	}
}

// mustSave writes a backup through one node to a new file.
func mustSave(t *testing.T, root *client.Client) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := root.SaveSnapshot(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	return path
}
