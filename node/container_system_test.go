package node_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/config"
	"berth/node/executor/docker/dockertest"
	"berth/node/inference/engine"
	"berth/node/nodetest"
)

// TestContainersThroughAFollower executes images, Compose files and services of an image as
// a user of a follower does, on three servers and a worker. All but the third server share
// the engine of this machine.
func TestContainersThroughAFollower(t *testing.T) {
	t.Parallel() // It mostly waits.
	host, compose := dockertest.Host(t), dockertest.Compose(t)
	dockertest.Probe(t)
	registry := dockertest.NewRegistry(t, "ada", canary)
	ecr := newECR(t, "ada", canary)
	models := t.TempDir()
	if err := os.MkdirAll(models+"/tiny/probe", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(models+"/tiny/probe/model.gguf", []byte("weights"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/tiny/probe", "/tiny/probe/model.gguf"} { // Only the mount keeps the engine from them.
		if err := os.Chmod(models+name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	mustMakeTensors(t, models)
	shipped := shippedImage(t)
	other := engineWithOtherIsolation(t, host)
	c := nodetest.NewWith(t, 4, func(i int, c *config.Config) {
		c.Inference.Models, c.Inference.Hub = models, config.HubOff
		c.Inference.Engines = []engine.Engine{{
			Name: "probe", Image: dockertest.Image, Command: []string{"model", "{port}", "{model_path}"},
			Formats: []string{engine.GGUF}, HealthPath: "/health",
		}, shipped}
		c.Docker.Host, c.Docker.Compose, c.Docker.Registries = host, compose, []string{registry.Host}
		c.Docker.ECR = ecr.URL
		switch i {
		case 1:
			c.GPUs.Simulated = nodetest.GPUs(0) // As good as the first node, for checkImageNode.
		case 2:
			c.Docker.Host = config.DockerOff // Everything works beside a node without an engine.
		case 3:
			c.Role, c.GPUs.Simulated = nodetest.Worker, []string{"b200:2"}
			c.Docker.Host, c.Docker.KeepMiB = other.Host, workerImagesMiB
		}
	})
	for _, text := range append(ecr.secrets(), canary) {
		c.Hide(text)
	}
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	checkTrust(t, c, api)
	drainNodes(t, c, true, c.Nodes[3]) // Until its turn comes.
	t.Run("bad starts", func(t *testing.T) { checkBadStarts(t, c.Follower().URL(), account.Key, badContainers()) })
	t.Run("image", func(t *testing.T) { checkImage(t, api) })
	t.Run("python", func(t *testing.T) { checkPython(t, api) })
	t.Run("fields", func(t *testing.T) { checkImageFields(t, c, account, api) })
	t.Run("storage", func(t *testing.T) { checkImageStorage(t, c, api) })
	t.Run("limits", func(t *testing.T) { checkImageLimits(t, c, api) })
	t.Run("private image", func(t *testing.T) { checkPrivateImage(t, c, api, registry) })
	t.Run("AWS key", func(t *testing.T) { checkAWSKey(t, c, api, registry, ecr) })
	t.Run("pull", func(t *testing.T) { checkPull(t, c, api, registry) })
	t.Run("refused pulls", func(t *testing.T) { checkRefusedPulls(t, api, registry) })
	t.Run("compose", func(t *testing.T) { checkCompose(t, api) })
	t.Run("compose leaves nothing", func(t *testing.T) { checkComposeLeaves(t, c, api) })
	t.Run("complete", func(t *testing.T) { checkComplete(t, c, api) })
	t.Run("service", func(t *testing.T) { checkImageService(t, c, account, api) })
	t.Run("kinds", func(t *testing.T) { checkKinds(t, c, account) })
	t.Run("explain", func(t *testing.T) { checkExplainEngines(t, c, api) })
	t.Run("engine", func(t *testing.T) { checkImageEngine(t, c, account, api) })
	t.Run("shipped engine", func(t *testing.T) { checkShippedImage(t, c, account, api) })
	t.Run("worker", func(t *testing.T) { checkWorkerImages(t, c, account, registry) })
	t.Run("engine down", func(t *testing.T) { checkEngineDown(t, c, account, other) })
	t.Run("restart", func(t *testing.T) { checkContainersOutliveTheirNode(t, c, account) })
	t.Run("engines gone", func(t *testing.T) { checkEnginesGone(t, c, account) })
}

// drainNodes drains nodes, or ends that.
func drainNodes(t *testing.T, c *nodetest.Cluster, drained bool, nodes ...*nodetest.Node) {
	t.Helper()
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	for _, n := range nodes {
		if _, err := operator.DrainNode(t.Context(), n.ID(), drained); err != nil {
			t.Fatal(err)
		}
	}
}

// mustSubmitImage starts an execution of an image.
func mustSubmitImage(t *testing.T, api *client.Client, start client.StartImage) compute.ExecutionID {
	t.Helper()
	started, err := api.SubmitImage(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	return started.ExecutionID
}

// checkImageEngine asks a model that an engine in an image serves. The engine reads the
// model and cannot change it, and has no network but its own.
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
		if answer.StatusCode != http.StatusOK || !strings.Contains(body, `"content":"weights lo read-only read-only"`) {
			t.Errorf("%d: %s", answer.StatusCode, body)
		}
	}
	dir := filepath.Join(c.Nodes[0].Config.Inference.Models, "tiny", "probe")
	data, err := os.ReadFile(filepath.Join(dir, "model.gguf"))
	if entries, bad := os.ReadDir(dir); err != nil || bad != nil || string(data) != "weights" || len(entries) != 1 {
		t.Errorf("the model is %q, in %v: %v, %v", data, entries, err, bad)
	}
	if _, err := api.DeleteDeployment(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the engine to end", func() bool {
		e, ok := c.Follower().Peer().View().AnyExecution(created.ID)
		return ok && e.Status.Terminal()
	})
}

// checkExplainEngines has an image wait for nodes that are drained. The explanation names
// the one that has no engine, beside them.
func checkExplainEngines(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	drainNodes(t, c, true, c.Nodes[:2]...)
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
	if got.Nodes != 4 || len(got.Refused) != 2 || got.Refused["nodes_down"] != 3 || got.Refused["no_engine"] != 1 {
		t.Errorf("%d nodes refuse it by %v", got.Nodes, got.Refused)
	}
	drainNodes(t, c, false, c.Nodes[:2]...)
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
func checkImageStorage(t *testing.T, c *nodetest.Cluster, api *client.Client) {
	mustHaveFUSE(t)
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
	mustHaveNoMounts(t, c.Nodes)
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
	start.Command, start.Restart = []string{"print", "short"}, "never" // It may end before it can be probed.
	if started, err = api.SubmitService(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCompleted {
		t.Errorf("a service that ends at once is %v, errors %v", e.Status, e.Errors)
	}
}
