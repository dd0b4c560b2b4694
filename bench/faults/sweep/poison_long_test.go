//go:build long

package sweep_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/faults/world"
	"berth/fault"
)

const poisonLimit = 2 * time.Minute

// TestPoisonIsSkipped follows the procedure of docs/operations.md for a command
// that makes every server exit. The servers report the remedy as they exit,
// also after a restart. The test applies it, and the cluster continues with
// everything acknowledged.
func TestPoisonIsSkipped(t *testing.T) {
	binary := mustBuild(t)
	ctx, cancel := context.WithTimeout(t.Context(), poisonLimit)
	defer cancel()
	w, err := world.Open(ctx, world.Config{
		Dir: t.TempDir(), Binary: binary, Nodes: 3, Points: true, Plant: string(fault.PoisonKey),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	const slug = "poison"
	var urls []string
	for _, n := range w.Nodes {
		urls = append(urls, n.URL())
	}
	root := mustClient(t, client.Config{Addrs: urls, Token: w.RootToken})
	user := wire.NewUser{Email: "p@example.com", Password: "correct horse battery", OrgSlug: slug, OrgName: slug}
	if _, err := root.CreateUser(ctx, user); err != nil {
		t.Fatal(err)
	}
	login, err := root.WithToken("").Login(ctx, user.Email, user.Password)
	if err != nil {
		t.Fatal(err)
	}
	owner := root.WithToken(login.AccessToken)
	if _, err := owner.CreateKey(ctx, slug, "before"); err != nil {
		t.Fatal(err)
	}
	once := mustClient(t, client.Config{Addrs: urls[:1], Token: login.AccessToken, RetryFor: -1})
	if k, err := once.CreateKey(ctx, slug, "poison"); err == nil {
		t.Fatalf("the command took effect: %+v", k)
	}

	// As systemd does: servers that exit are started again, and exit again.
	for _, n := range w.Nodes {
		for times := 0; times < 2; times = len(recommended(t, n)) {
			if err := w.StartAll(ctx); err != nil {
				t.Fatal(err)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s recommended a skip %d times; see %s", n.Name, times, n.Log())
			}
		}
	}
	command := mustAgree(t, w)
	for _, n := range w.Nodes {
		if err := n.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		mustSkip(ctx, t, binary, strings.Replace(command, w.Nodes[0].Data(), n.Data(), 1))
	}
	if err := w.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.WaitWhole(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.CreateKey(ctx, slug, "renamed"); err != nil {
		t.Errorf("the request in other words: %v", err)
	}
	keys, err := owner.Keys(ctx, slug)
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"before", "renamed"}) {
		t.Errorf("keys are %v, %v", names, err)
	}
	mustBeEqual(ctx, t, w)
}

// recommended returns the commands that a node recommended as it exited, one
// per exit.
func recommended(t *testing.T, n *world.Node) []string {
	t.Helper()
	text, err := os.ReadFile(n.Log())
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`berth admin raft skip --data-dir \S+ --entry \d+ --hash [0-9a-f]{64}`)
	return command.FindAllString(string(text), -1)
}

// mustAgree returns the recommended command, once all nodes recommend the same
// one for their own directories.
func mustAgree(t *testing.T, w *world.World) (command string) {
	t.Helper()
	for i, n := range w.Nodes {
		for _, got := range recommended(t, n) {
			if i == 0 && command == "" {
				command = got
			}
			if want := strings.Replace(command, w.Nodes[0].Data(), n.Data(), 1); got != want {
				t.Errorf("%s recommends %s, want %s", n.Name, got, want)
			}
		}
		const why = "CreateKey: the key has the name that was planted"
		if line, err := n.LogLine(why); err != nil || line == "" {
			t.Errorf("%s does not log %q, %v", n.Name, why, err)
		}
	}
	return command
}

// mustSkip runs the recommended command, first as a dry run. The last node to
// receive the entry may not have it.
func mustSkip(ctx context.Context, t *testing.T, binary, command string) {
	t.Helper()
	args := strings.Fields(strings.TrimPrefix(command, "berth "))
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err != nil && strings.Contains(string(out), "does not have entry") {
		args = append(args, "--force")
		out, err = exec.CommandContext(ctx, binary, args...).CombinedOutput()
	} else if !strings.Contains(string(out), "CreateKey") {
		t.Errorf("%s does not show what it is:\n%s", command, out)
	}
	if err != nil || !strings.Contains(string(out), "Nothing is changed yet") {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
	out, err = exec.CommandContext(ctx, binary, append(args, "--yes")...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Do this on every server, then start them.") {
		t.Fatalf("%s --yes: %v\n%s", command, err, out)
	}
}

// mustBeEqual waits until all nodes have reported the same state at one index,
// and checks that they do not differ at another.
func mustBeEqual(ctx context.Context, t *testing.T, w *world.World) {
	t.Helper()
	seen := map[uint64]map[string]bool{} // Nodes by index.
	hashes := map[uint64]string{}
	for {
		for _, n := range w.Nodes {
			state, err := mustClient(t, client.Config{Addrs: []string{n.URL()}, Token: w.RootToken}).State(ctx, true)
			if err != nil {
				t.Fatal(err)
			}
			hash := fmt.Sprint(state.Hash)
			if other, known := hashes[state.Index]; known && other != hash {
				t.Fatalf("%s differs at index %d: %s, another one %s", n.Name, state.Index, hash, other)
			}
			if hashes[state.Index] = hash; seen[state.Index] == nil {
				seen[state.Index] = map[string]bool{}
			}
			if seen[state.Index][n.Name] = true; len(seen[state.Index]) == len(w.Nodes) {
				return
			}
		}
	}
}

func mustClient(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
