package node_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/executor/docker/dockertest"
	"berth/node/nodetest"
)

// checkPrivateImage pulls an image with a secret of the user as the password, which is in
// no file of any node, and is refused without it.
func checkPrivateImage(t *testing.T, c *nodetest.Cluster, api *client.Client, registry *dockertest.Registry) {
	ref := registry.Push(t, "team/private", "1")
	t.Cleanup(func() { dockertest.Remove(t, ref) })
	start := client.StartImage{Image: ref, RunCommand: []string{"print", "private"}}
	started, err := api.SubmitImage(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusFailed || e.StatusDetails == nil || *e.StatusDetails != "image" || e.ErrorsDocker == nil {
		t.Errorf("without credentials it is %v, errors %v", e.Status, e.Errors)
	}
	if e.Billed == nil || *e.Billed != 0 {
		t.Errorf("an image that could not be pulled costs %v", e.Billed)
	}
	if err := api.SetVariable(t.Context(), "REGISTRY_PASSWORD", canary, true); err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"${{ secrets.REGISTRY_PASSWORD }}", canary} {
		start.Registry = client.Registry{CredentialType: "basic", Username: "ada", Password: password}
		if started, err = api.SubmitImage(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		if e = mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCompleted || e.Stdout != "private\n" {
			t.Errorf("with credentials it is %v with output %q, errors %v", e.Status, e.Stdout, e.Errors)
		}
	}
	for _, n := range c.Nodes {
		if contains(t, n.Config.DataDir, canary) {
			t.Errorf("a file of node %s has the password", n.ID())
		}
	}
	checkImageNode(t, c, api, registry)
}

// checkPull holds a pull in the middle: the stream of the follower shows how far it is, the
// execution does not run yet, and its charge is for the time after the pull.
func checkPull(t *testing.T, c *nodetest.Cluster, api *client.Client, registry *dockertest.Registry) {
	release := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn()
	registry.Halfway = func() { <-release }
	ref := registry.PushLarge(t, "team/large", "1", 4<<20)
	t.Cleanup(func() { dockertest.Remove(t, ref) })
	start := client.StartImage{Image: ref, RunCommand: []string{"print", "pulled it"}}
	start.Registry = client.Registry{CredentialType: "basic", Username: "ada", Password: canary}
	started, err := api.SubmitImage(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), endWait)
	defer cancel()
	var begin, end time.Time
	text, halfway := "", false
	progress := regexp.MustCompile(`image: [0-9]+ of [0-9]+ MiB\n`)
	for event, err := range api.Stream(ctx, started.ExecutionID, 0) {
		if err != nil {
			t.Fatalf("%q, and then %v", text, err)
		}
		text += event.Content
		if strings.Contains(event.Content, "image: pulling "+ref) {
			begin = event.At
		}
		if strings.Contains(event.Content, "image: pulled "+ref) {
			end = event.At
		}
		if !halfway && progress.MatchString(text) {
			e, err := api.Execution(t.Context(), started.ExecutionID, 0)
			if err != nil || e.Status != compute.StatusStarting || e.StartTime != nil || !end.IsZero() {
				t.Errorf("while its image is pulled it is %v, since %v, %v", e.Status, e.StartTime, err)
			}
			halfway = true
			goOn()
		}
	}
	if !halfway || end.IsZero() || !strings.HasSuffix(text, "pulled it\n") {
		t.Errorf("the stream is %q", text)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCompleted || e.Billed == nil {
		t.Fatalf("it is %v, errors %v", e.Status, e.Errors)
	}
	known, _ := c.Follower().Peer().View().AnyExecution(started.ExecutionID)
	free := known.EndedAt.Sub(known.PlacedAt) - known.Duration
	if known.Billed != known.Price.Charge(known.Duration) || free < end.Sub(begin) {
		t.Errorf("charged is %v for %v, %v are free, and the pull took %v", known.Billed, known.Duration, free, end.Sub(begin))
	}
}

// checkRefusedPulls asks for images that an allowed registry does not have, or not for this
// user or machine. The execution ends at once, costs nothing, and says why everywhere.
func checkRefusedPulls(t *testing.T, api *client.Client, registry *dockertest.Registry) {
	foreign := registry.PushFor(t, "s390x", "team/foreign", "1")
	t.Cleanup(func() { dockertest.Remove(t, foreign) })
	private := registry.Push(t, "team/refused", "1")
	for name, test := range map[string]struct{ ref, password, says string }{
		"missing":              {registry.Host + "/team/missing:1", canary, "cannot be pulled: the registry has no such image"},
		"another architecture": {foreign, canary, "is for linux/s390x, and this machine is linux/"},
		"wrong password":       {private, "a guess", "the registry answers 401 Unauthorized"},
	} {
		start := client.StartImage{Image: test.ref}
		start.Registry = client.Registry{CredentialType: "basic", Username: "ada", Password: test.password}
		started, err := api.SubmitImage(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		e := mustFinish(t, api, started.ExecutionID)
		says := func(text string) bool { return strings.Contains(text, test.ref) && strings.Contains(text, test.says) }
		if e.Status != compute.StatusFailed || e.StatusDetails == nil || *e.StatusDetails != "image" || e.ErrorsDocker == nil ||
			!says(*e.ErrorsDocker) || e.Billed == nil || *e.Billed != 0 || len(e.Attempts) != 1 {
			t.Errorf("%s: it is %v, errors %v, for Docker %v, billed %v after %d attempts",
				name, e.Status, e.Errors, e.ErrorsDocker, e.Billed, len(e.Attempts))
		}
		finished := false
		for event, err := range api.Stream(t.Context(), started.ExecutionID, 0) {
			if err != nil || event.Finished != nil && (event.Finished.Error == nil || !says(*event.Finished.Error)) {
				t.Errorf("%s: the stream ends with %+v, %v", name, event.Finished, err)
			}
			finished = finished || event.Finished != nil
		}
		if !finished {
			t.Errorf("%s: the stream does not say how it ended", name)
		}
	}
}

// checkImageNode executes an image again where it already is, which is either of the nodes
// with an engine: they are equally good for it.
func checkImageNode(t *testing.T, c *nodetest.Cluster, api *client.Client, registry *dockertest.Registry) {
	t.Helper()
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	execute := func(start client.StartImage) string {
		t.Helper()
		started, err := api.SubmitImage(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		e := mustFinish(t, api, started.ExecutionID)
		if e.Metadata == nil || e.Metadata.Node == nil {
			t.Fatalf("it is %v, errors %v", e.Status, e.Errors)
		}
		return *e.Metadata.Node
	}
	for i, holder := range c.Nodes[:2] {
		ref := registry.Push(t, fmt.Sprintf("team/held%d", i), "1")
		t.Cleanup(func() { dockertest.Remove(t, ref) })
		start := client.StartImage{Image: ref, RunCommand: []string{"print", "x"}}
		start.Registry = client.Registry{CredentialType: "basic", Username: "ada", Password: canary}
		drain := func(drained bool) {
			if _, err := operator.DrainNode(t.Context(), c.Nodes[1-i].ID(), drained); err != nil {
				t.Fatal(err)
			}
		}
		drain(true)
		execute(start)
		drain(false)
		nodetest.Eventually(t, endWait, "the node to say that it has the image", func() bool {
			nodes, err := operator.Nodes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(nodes, func(n wire.Node) bool {
				return n.ID == holder.ID() && slices.Contains(n.Offers, compute.ImageOffer(start.Image))
			})
		})
		if on := execute(start); on != holder.Config.Name {
			t.Errorf("it was executed on %s, and the image is on %s", on, holder.Config.Name)
		}
	}
}
