package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dockerclient "github.com/moby/moby/client"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/config"
	"berth/node/executor/docker/dockertest"
	"berth/node/executor/supervise"
	"berth/node/inference/engine"
	"berth/node/nodetest"
	"berth/testsize"
)

// TestContainersThroughAFollower executes images, Compose files and services of an image as
// a user of a follower does, on three nodes, two of which share the engine of this machine.
func TestContainersThroughAFollower(t *testing.T) {
	t.Parallel() // It mostly waits.
	host, compose := dockertest.Host(t), dockertest.Compose(t)
	dockertest.Probe(t)
	registry := dockertest.NewRegistry(t, "ada", canary)
	models := t.TempDir()
	if err := os.MkdirAll(models+"/tiny/probe", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(models+"/tiny/probe/model.gguf", []byte("weights"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := nodetest.NewWith(t, 3, func(i int, c *config.Config) {
		c.Inference.Models, c.Inference.Hub = models, config.HubOff
		c.Inference.Engines = []engine.Engine{{
			Name: "probe", Image: dockertest.Image, Command: []string{"model", "{port}", "{model_path}"},
			Formats: []string{engine.GGUF}, HealthPath: "/health",
		}}
		c.Docker.Host, c.Docker.Compose, c.Docker.Registries = host, compose, []string{registry.Host}
		switch i {
		case 1:
			c.GPUs.Simulated = nodetest.GPUs(0) // As good as the first node, for checkImageNode.
		case 2:
			c.Docker.Host = config.DockerOff // Everything works beside a node without an engine.
		}
	})
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	checkTrust(t, c, api)
	t.Run("image", func(t *testing.T) { checkImage(t, api) })
	t.Run("python", func(t *testing.T) { checkPython(t, api) })
	t.Run("fields", func(t *testing.T) { checkImageFields(t, c, account, api) })
	t.Run("storage", func(t *testing.T) { checkImageStorage(t, api) })
	t.Run("private image", func(t *testing.T) { checkPrivateImage(t, c, api, registry) })
	t.Run("pull", func(t *testing.T) { checkPull(t, c, api, registry) })
	t.Run("refused pulls", func(t *testing.T) { checkRefusedPulls(t, api, registry) })
	t.Run("compose", func(t *testing.T) { checkCompose(t, api) })
	t.Run("compose leaves nothing", func(t *testing.T) { checkComposeLeaves(t, c, api) })
	t.Run("complete", func(t *testing.T) { checkComplete(t, api) })
	t.Run("service", func(t *testing.T) { checkImageService(t, c, account, api) })
	t.Run("explain", func(t *testing.T) { checkExplainEngines(t, c, api) })
	t.Run("engine", func(t *testing.T) { checkImageEngine(t, c, account, api) })
}

// checkImageEngine asks a model that an engine in an image serves. The engine reads the
// model, and has no network but its own.
func checkImageEngine(t *testing.T, c *nodetest.Cluster, account nodetest.Account, api *client.Client) {
	want := deploymentOf("tiny/probe")
	want.Engine, want.MaxReplicas = "probe", 1
	created, err := api.Deploy(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	mustDeployment(t, api, created.ID, "ready")
	for _, n := range c.Nodes {
		answer, body := mustAsk(t, http.DefaultClient, http.MethodPost, n.URL()+"/openai/v1/chat/completions", account.Key,
			prompt(created.ID.String(), "hello", false))
		if answer.StatusCode != http.StatusOK || !strings.Contains(body, `"content":"weights lo"`) {
			t.Errorf("%d: %s", answer.StatusCode, body)
		}
	}
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the engine to end", func() bool {
		e, ok := c.Follower().Peer().View().AnyExecution(created.ID)
		return ok && e.Status.Terminal()
	})
}

// checkTrust executes a container of an organization that nobody trusts, which is refused
// if the engine is old, and has an operator trust it.
func checkTrust(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	t.Helper()
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	nodes, err := operator.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var offers []compute.Offer
	for _, n := range nodes {
		offers = append(offers, n.Offers...)
	}
	strong := slices.Contains(offers, compute.DockerOffer(false))
	_, err = api.SubmitImage(t.Context(), client.StartImage{Image: dockertest.Image})
	if strong != (err == nil) || err != nil && !strings.Contains(err.Error(), "trusted") {
		t.Errorf("nodes offer %v, and the start answers %v", offers, err)
	}
	if org, err := operator.TrustOrg(t.Context(), "acme", true); err != nil || !org.Trusted {
		t.Fatalf("got %+v, %v", org, err)
	}
}

// checkExplainEngines has an image wait for nodes that are drained. The explanation names
// the one that has no engine, beside them.
func checkExplainEngines(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	drain := func(drained bool) {
		t.Helper()
		for _, n := range c.Nodes[:2] {
			if _, err := operator.DrainNode(t.Context(), n.ID(), drained); err != nil {
				t.Fatal(err)
			}
		}
	}
	drain(true)
	started, err := api.SubmitImage(t.Context(), client.StartImage{Image: dockertest.Image, RunCommand: []string{"print", "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	var got wire.Explanation
	nodetest.Eventually(t, endWait, "the scheduler to say why it waits", func() bool {
		if got, err = api.Explain(t.Context(), started.ExecutionID, false); err != nil {
			t.Fatal(err)
		}
		return got.Reason != nil && *got.Reason == "nodes_down"
	})
	if got.Nodes != 3 || len(got.Refused) != 2 || got.Refused["nodes_down"] != 2 || got.Refused["no_engine"] != 1 {
		t.Errorf("%d nodes refuse it by %v", got.Nodes, got.Refused)
	}
	drain(false)
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCompleted {
		t.Errorf("it is %v, errors %v", e.Status, e.Errors)
	}
}

func checkImage(t *testing.T, api *client.Client) {
	start := client.StartImage{Image: dockertest.Image, RunCommand: []string{"print", "hello", "from", "a", "container"}}
	started, err := api.SubmitImage(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || e.Stdout != "hello from a container\n" || e.ExecutionType != compute.KindDocker ||
		e.Metadata.ImageDigest == nil || !strings.HasPrefix(*e.Metadata.ImageDigest, "sha256:") {
		t.Errorf("it is %v with output %q, errors %v, metadata %+v", e.Status, e.Stdout, e.Errors, e.Metadata)
	}
}

// checkPython executes Python in an image that has it, with its library.
func checkPython(t *testing.T, api *client.Client) {
	const code = "import collections, json, os, sys; print(json.dumps({'counts': collections.Counter('aab'), " +
		"'root': os.listdir('/usr'), 'args': sys.argv[1:]}, sort_keys=True))"
	start := client.StartImage{Image: dockertest.Python(t), RunCommand: []string{"python3", "-c", code, "two words"}}
	started, err := api.SubmitImage(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	const want = `{"args": ["two words"], "counts": {"a": 2, "b": 1}, "root": [`
	if e.Status != compute.StatusCompleted || !strings.HasPrefix(e.Stdout, want) {
		t.Errorf("it is %v with output %q %q, errors %v", e.Status, e.Stdout, e.Stderr, e.Errors)
	}
}

// checkImageFields starts an image with the fields that only images have.
func checkImageFields(t *testing.T, c *nodetest.Cluster, account nodetest.Account, api *client.Client) {
	start := func(fields string) compute.ExecutionID {
		t.Helper()
		answer, text := mustAsk(t, http.DefaultClient, http.MethodPost, c.Follower().URL()+"/api/v2/external/execution/image/start", account.Key,
			strings.NewReader(`{"docker_image_ref":"`+dockertest.Image+`",`+fields+`}`))
		var started wire.Started
		if err := json.Unmarshal([]byte(text), &started); err != nil || answer.StatusCode >= http.StatusBadRequest {
			t.Fatalf("%d: %s", answer.StatusCode, text)
		}
		return started.ExecutionID
	}
	e := mustFinish(t, api, start(`"docker_run_cmd":["each","env",";","id"],"docker_run_user":"1234:2345",`+
		`"docker_run_env":"# not this\n\nGREETING=two words\nBOTH=file","env":{"BOTH":"start"}`))
	for _, line := range []string{"GREETING=two words", "BOTH=start", "1234 2345"} {
		if !strings.Contains("\n"+e.Stdout, "\n"+line+"\n") {
			t.Errorf("the output has no line %q: %q, %v", line, e.Stdout, e.Errors)
		}
	}
	id := start(`"docker_run_cmd":["sleep","300"],"graceful_timeout":1`) // It ignores SIGTERM.
	nodetest.Eventually(t, time.Minute, "the start", func() bool {
		e, err := api.Execution(t.Context(), id, 0)
		return err == nil && strings.Contains(e.Stdout, "sleeping")
	})
	if known, ok := c.Follower().Peer().View().AnyExecution(id); !ok || known.Container.Grace != time.Second {
		t.Errorf("its grace is that of %+v", known)
	}
	if err := api.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, id); e.Status != compute.StatusCancelled || e.ReturnCode == nil || *e.ReturnCode != 137 {
		t.Errorf("it is %v with code %v", e.Status, e.ReturnCode)
	}
}

// checkImageStorage reads and writes stored files in a container, which has them without
// asking, and has none if it asks for that.
func checkImageStorage(t *testing.T, api *client.Client) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("no /dev/fuse: storage cannot be mounted")
	}
	if _, err := api.Upload(t.Context(), bytesOf("in/text", []byte("stored"))); err != nil {
		t.Fatal(err)
	}
	off := false
	for _, enabled := range []*bool{nil, &off} {
		start := client.StartImage{
			Image: dockertest.Image, RunCommand: []string{"each", "read", "/mnt/s3/in/text", ";", "write", "/mnt/s3/made", "3"},
		}
		start.EnableS3Mount = enabled
		started, err := api.SubmitImage(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		e := mustFinish(t, api, started.ExecutionID)
		if seen := strings.Contains(e.Stdout, "stored"); seen != (enabled == nil) || (e.S3MountPath != nil) != seen {
			t.Errorf("it ended as %s %v with %q %q, and sees the files: %v", e.Status, e.Errors, e.Stdout, e.Stderr, seen)
		}
		files, _, err := api.Files(t.Context(), "made", "", 0)
		if err != nil || len(files) != 1 || files[0].Key != "made" || files[0].Size != 3<<20 {
			t.Errorf("it left %+v, %v", files, err)
		}
	}
	checkComposeStorage(t, api)
	mustHaveNoMounts(t)
}

const storageText = `
services:
  writer:
    image: ${IMAGE}
    command: [write, /mnt/s3/composed, "0"]
  reader:
    image: ${IMAGE}
    command: [read, /mnt/s3/in/text]
    depends_on: {writer: {condition: service_completed_successfully}}
`

// checkComposeStorage reads and writes stored files in the services of a Compose file, which
// have them when they ask for them. Nothing of a service may be in their place.
func checkComposeStorage(t *testing.T, api *client.Client) {
	on := true
	start := client.StartCompose{File: storageText}
	start.Env, start.EnableS3Mount = map[string]string{"IMAGE": dockertest.Image}, &on
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || !strings.Contains(e.Stdout, "| stored") || e.S3MountPath == nil || *e.S3MountPath != "/mnt/s3" {
		t.Errorf("it ended as %s %v with %q %q, mounted at %v", e.Status, e.Errors, e.Stdout, e.Stderr, e.S3MountPath)
	}
	if files, _, err := api.Files(t.Context(), "composed", "", 0); err != nil || len(files) != 1 {
		t.Errorf("it left %+v, %v", files, err)
	}
	start.File = strings.Replace(storageText, "    depends_on", "    tmpfs: [/mnt]\n    depends_on", 1)
	if _, err := api.SubmitCompose(t.Context(), start); err == nil || !strings.Contains(err.Error(), "a volume at /mnt") {
		t.Errorf("a service with a directory in the way: %v", err)
	}
}

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

const composeText = `
services:
  ready:
    image: ${IMAGE}
    command: [print, ready, $GREETING]
  worker:
    image: ${IMAGE}
    command: [write, /data/file, "0"]
    volumes: [data:/data]
    depends_on: {ready: {condition: service_completed_successfully}}
  reader:
    image: ${IMAGE}
    command: [read, /data/file]
    volumes: [data:/data]
    depends_on: {worker: {condition: service_completed_successfully}}
volumes:
  data: {}
`

func checkCompose(t *testing.T, api *client.Client) {
	start := client.StartCompose{File: composeText}
	start.Env = map[string]string{"IMAGE": dockertest.Image, "GREETING": "to work"}
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || !strings.Contains(e.Stdout, "| ready to work") || !strings.Contains(e.Stdout, "| written") {
		t.Errorf("it is %v with output %q %q, errors %v", e.Status, e.Stdout, e.Stderr, e.Errors)
	}
	start.File = "services:\n  a: {image: $IMAGE, command: [term, '9']}\n  b: {image: $IMAGE, command: [exit, '7']}\n"
	if started, err = api.SubmitCompose(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	e = mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusFailed || e.ReturnCode == nil || *e.ReturnCode != 7 {
		t.Errorf("it is %v with code %v, output %q %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Stderr, e.Errors)
	}
	// The services reach each other by name, and a bridge has an address for each container.
	start.File = fmt.Sprintf("services:\n  a: {image: $IMAGE, command: [serve, '8000'], scale: %d}\n"+
		"  b: {image: $IMAGE, command: [ask, 'http://a:8000/hello', '7'], depends_on: [a]}\n", testsize.Pick(2, 20))
	if started, err = api.SubmitCompose(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	e = mustFinish(t, api, started.ExecutionID)
	if e.ReturnCode == nil || *e.ReturnCode != 7 || !strings.Contains(e.Stdout, "served /hello") {
		t.Errorf("it is %v with code %v, output %q %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Stderr, e.Errors)
	}
	t.Run("internal networks", func(t *testing.T) { checkInternalNetworks(t, api) })
	checkGang(t, api)
	checkBadCompose(t, api)
}

// checkGang reserves GPUs in two services, which one node gives together: 3 are a gang of 4.
// A start with more of them than any node has is refused.
func checkGang(t *testing.T, api *client.Client) {
	t.Helper()
	const service = "  %s: {image: $IMAGE, command: [print, x], deploy: {resources: {reservations: {devices: [" +
		"{driver: nvidia, count: %d, capabilities: [gpu]}]}}}}\n"
	files := func(a, b int) client.StartCompose {
		start := client.StartCompose{File: "services:\n" + fmt.Sprintf(service, "a", a) + fmt.Sprintf(service, "b", b)}
		start.Env, start.ExecutionType = map[string]string{"IMAGE": dockertest.Image}, "gpu.l40s"
		return start
	}
	started, err := api.SubmitCompose(t.Context(), files(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Status != compute.StatusCompleted || len(e.Attempts) != 1 || len(e.Attempts[0].GPUs) != 4 {
		t.Errorf("it is %v, errors %v, after %+v", e.Status, e.Errors, e.Attempts)
	}
	if _, err := api.SubmitCompose(t.Context(), files(2, 3)); err == nil || !strings.Contains(err.Error(), "l40s") {
		t.Errorf("5 GPUs of one type, of which a node has 4: %v", err)
	}
}

// checkBadCompose sends Compose files that are refused, with the place of the fault.
func checkBadCompose(t *testing.T, api *client.Client) {
	t.Helper()
	var many strings.Builder
	many.WriteString("services:\n")
	for n := range 10_000 {
		fmt.Fprintf(&many, "  s%d: {image: x}\n", n)
	}
	for text, place := range map[string]string{
		"services:\n  a:\n    image: x\n    privileged: true\n":                           "line 4, column 5",
		"services:\n\tweb: {image: x}\n":                                                  "line 2",
		"services:\n  web: *nowhere\n":                                                    "line 2",
		"services:\n  a: {image: x, depends_on: [b]}\n  b: {image: x, depends_on: [a]}\n": "line 2",
		many.String(): "line 66",
	} {
		_, err := api.SubmitCompose(t.Context(), client.StartCompose{File: text})
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity || !strings.Contains(err.Error(), place) {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}

const internalText = `
services:
  server:
    image: ${IMAGE}
    command: [serve, "8000"]
    networks: {back: {aliases: [database]}}
  shut:
    image: ${IMAGE}
    command: [each, dial, "$MACHINE", ";", bound, "$MACHINE", ";", dial, "192.0.2.1:80", ";", lookup, example.com]
    networks: [back]
  apart:
    image: ${IMAGE}
    command: [each, lookup, server, ";", lookup, web]
  web:
    image: ${IMAGE}
    command: [ask, "http://database:8000/hello", "7"]
    networks: [back, front]
    depends_on:
      shut: {condition: service_completed_successfully}
      apart: {condition: service_completed_successfully}
networks:
  front: {}
  back: {internal: true}
`

// checkInternalNetworks executes a Compose file with a network without a way out: its
// services reach each other, also from a service that is on the other network too, and
// nothing else. Services that are not on it do not know them.
func checkInternalNetworks(t *testing.T, api *client.Client) {
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	machine := fmt.Sprintf("%s:%d", machineAddress(t), listener.Addr().(*net.TCPAddr).Port)
	start := client.StartCompose{File: internalText}
	start.Env = map[string]string{"IMAGE": dockertest.Image, "MACHINE": machine}
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.ReturnCode == nil || *e.ReturnCode != 7 || !strings.Contains(e.Stdout, "served /hello") {
		t.Errorf("it is %v with code %v, output %q %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Stderr, e.Errors)
	}
	for _, attack := range []string{"dial " + machine, "bound " + machine, "dial 192.0.2.1:80", "lookup example.com", "lookup server"} {
		if !strings.Contains(e.Stdout, attack+": failed") {
			t.Errorf("%s is not refused: %q", attack, e.Stdout)
		}
	}
	docker := dockertest.Client(t)
	nodetest.Eventually(t, time.Minute, "the end of the networks", func() bool {
		left, err := docker.NetworkList(t.Context(), dockerclient.NetworkListOptions{
			Filters: make(dockerclient.Filters).Add("label", "berth.attempt="+started.ExecutionID.String()+".1"),
		})
		return err == nil && len(left.Items) == 0
	})
}

const endlessText = `
services:
  one:
    image: ${IMAGE}
    command: [term, "0"]
    volumes: [data:/data]
    networks: [back]
  two:
    image: ${IMAGE}
    command: [term, "0"]
    networks: [back, front]
volumes: {data: {}}
networks: {front: {}, back: {internal: true}}
`

// checkComposeLeaves ends executions of a Compose file by an abort and by the death of the
// supervisor, which is above Docker Compose: neither leaves a container, a volume or a
// network.
func checkComposeLeaves(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	docker := dockertest.Client(t)
	ends := []struct {
		name, reason string
		end          func(compute.ExecutionID)
	}{
		{"abort", "aborted", func(id compute.ExecutionID) {
			if err := api.Abort(t.Context(), id); err != nil {
				t.Error(err)
			}
		}},
		{"killed supervisor", "supervisor_lost", func(id compute.ExecutionID) { mustKillSupervisorOf(t, c, id) }},
	}
	start := client.StartCompose{File: endlessText}
	start.Env = map[string]string{"IMAGE": dockertest.Image}
	var ids []compute.ExecutionID
	for range ends {
		started, err := api.SubmitCompose(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, started.ExecutionID)
	}
	labels := make([][]string, len(ends))
	for i, tt := range ends {
		nodetest.Eventually(t, endWait, "both services to run", func() bool {
			e, err := api.Execution(t.Context(), ids[i], 0)
			return err == nil && strings.Count(e.Stdout, "ready") == 2
		})
		attempt := "berth.attempt=" + ids[i].String() + ".1"
		containers, err := docker.ContainerList(t.Context(), dockerclient.ContainerListOptions{
			All: true, Filters: make(dockerclient.Filters).Add("label", attempt),
		})
		if err != nil || len(containers.Items) == 0 {
			t.Fatalf("%s: %d containers: %v", tt.name, len(containers.Items), err)
		}
		const project = "com.docker.compose.project"
		labels[i] = []string{attempt, project + "=" + containers.Items[0].Labels[project]}
		for _, label := range labels[i] {
			if made := onEngine(t, docker, label); made != [3]int{2, 1, 1} {
				t.Errorf("%s: with label %s there are %v containers, volumes and networks", tt.name, label, made)
			}
		}
		tt.end(ids[i])
	}
	for i, tt := range ends {
		if e := mustFinish(t, api, ids[i]); e.StatusDetails == nil || *e.StatusDetails != tt.reason {
			t.Errorf("%s: it is %v, details %v, errors %v", tt.name, e.Status, e.StatusDetails, e.Errors)
		}
		nodetest.Eventually(t, endWait, tt.name+": nothing to be left", func() bool {
			return onEngine(t, docker, labels[i][0]) == [3]int{} && onEngine(t, docker, labels[i][1]) == [3]int{}
		})
	}
}

// onEngine returns how many containers, volumes and networks with a label there are.
func onEngine(t *testing.T, docker *dockerclient.Client, label string) (n [3]int) {
	t.Helper()
	with := make(dockerclient.Filters).Add("label", label)
	containers, err := docker.ContainerList(t.Context(), dockerclient.ContainerListOptions{All: true, Filters: with})
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := docker.VolumeList(t.Context(), dockerclient.VolumeListOptions{Filters: with})
	if err != nil {
		t.Fatal(err)
	}
	networks, err := docker.NetworkList(t.Context(), dockerclient.NetworkListOptions{Filters: with})
	if err != nil {
		t.Fatal(err)
	}
	return [3]int{len(containers.Items), len(volumes.Items), len(networks.Items)}
}

// mustKillSupervisorOf kills the supervisor of the first attempt of an execution.
func mustKillSupervisorOf(t *testing.T, c *nodetest.Cluster, id compute.ExecutionID) {
	t.Helper()
	for _, n := range c.Nodes {
		data, err := os.ReadFile(filepath.Join(n.Config.DataDir, "attempts", id.String(), "1", supervise.PIDFile))
		if err != nil {
			continue // It is on another node.
		}
		pid, err := strconv.Atoi(strings.Fields(string(data))[0])
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("nothing supervises the execution")
}

// machineAddress returns an address of this machine on a network.
func machineAddress(t *testing.T) string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine is on no network")
	return ""
}

// checkComplete reports the end of an execution of a Compose file that lives, which ends it,
// and of one that has ended, which stays as it is.
func checkComplete(t *testing.T, api *client.Client) {
	start := client.StartCompose{File: "services: {a: {image: " + dockertest.Image + ", command: [term, '0']}}"}
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, time.Minute, "the start", func() bool {
		e, err := api.Execution(t.Context(), started.ExecutionID, 0)
		return err == nil && strings.Contains(e.Stdout, "ready")
	})
	for _, output := range []string{"the end", "another"} {
		if _, err := api.CompleteCompose(t.Context(), started.ExecutionID, wire.ComposeComplete{Output: output, Status: "completed"}); err != nil {
			t.Fatal(err)
		}
		e := mustFinish(t, api, started.ExecutionID)
		if e.Status != compute.StatusCancelled || e.Reported == nil || e.Reported.Output != "the end" {
			t.Errorf("it is %v with report %+v", e.Status, e.Reported)
		}
	}
	start.File = "services: {a: {image: " + dockertest.Image + ", command: [print, done]}}"
	if started, err = api.SubmitCompose(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	before := mustFinish(t, api, started.ExecutionID)
	if _, err := api.CompleteCompose(t.Context(), started.ExecutionID, wire.ComposeComplete{Output: "no", Status: "failed"}); err != nil {
		t.Fatal(err)
	}
	after := mustFinish(t, api, started.ExecutionID)
	if after.Status != compute.StatusCompleted || before.Billed == nil || after.Billed == nil || *after.Billed != *before.Billed ||
		*after.Billed == 0 || !reflect.DeepEqual(after.Usage, before.Usage) {
		t.Errorf("before the report %v, %v, %+v, after it %v, %v, %+v",
			before.Status, before.Billed, before.Usage, after.Status, after.Billed, after.Usage)
	}
}

func checkImageService(t *testing.T, c *nodetest.Cluster, account nodetest.Account, api *client.Client) {
	start := client.StartService{Image: dockertest.Image, Port: 8000}
	start.Command = []string{"serve", "8000"}
	started, err := api.SubmitService(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, time.Minute, "a ready replica", func() bool {
		s, err := api.Service(t.Context(), started.ExecutionID)
		return err == nil && s.Ready == 1
	})
	_, answer := mustAsk(t, http.DefaultClient, http.MethodGet,
		c.Follower().URL()+"/services/"+started.ExecutionID.String()+"/hello", account.Key, nil)
	if !strings.Contains(answer, "served /hello") {
		t.Errorf("the service answers %q", answer)
	}
	if _, err := api.DeleteService(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
}
