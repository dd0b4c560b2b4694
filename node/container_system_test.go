package node_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	dockerclient "github.com/moby/moby/client"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/config"
	"berth/node/executor/docker/dockertest"
	"berth/node/inference/engine"
	"berth/node/nodetest"
	"berth/testsize"
)

// TestContainersThroughAFollower executes images, Compose files and services of an image as
// a user of a follower does, on three nodes that share the engine of this machine.
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
	c := nodetest.NewWith(t, 3, func(_ int, c *config.Config) {
		c.Inference.Models, c.Inference.Hub = models, config.HubOff
		c.Inference.Engines = []engine.Engine{{
			Name: "probe", Image: dockertest.Image, Command: []string{"model", "{port}", "{model_path}"},
			Formats: []string{engine.GGUF}, HealthPath: "/health",
		}}
		c.Docker.Host, c.Docker.Compose, c.Docker.Registries = host, compose, []string{registry.Host}
	})
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	checkTrust(t, c, api)
	t.Run("image", func(t *testing.T) { checkImage(t, api) })
	t.Run("fields", func(t *testing.T) { checkImageFields(t, c, account, api) })
	t.Run("storage", func(t *testing.T) { checkImageStorage(t, api) })
	t.Run("private image", func(t *testing.T) { checkPrivateImage(t, c, api, registry) })
	t.Run("compose", func(t *testing.T) { checkCompose(t, api) })
	t.Run("complete", func(t *testing.T) { checkComplete(t, api) })
	t.Run("service", func(t *testing.T) { checkImageService(t, c, account, api) })
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
	strong := false
	for _, offer := range nodes[0].Offers {
		strong = strong || offer == compute.DockerOffer(false)
	}
	_, err = api.SubmitImage(t.Context(), client.StartImage{Image: dockertest.Image})
	if strong != (err == nil) || err != nil && !strings.Contains(err.Error(), "trusted") {
		t.Errorf("nodes offer %v, and the start answers %v", nodes[0].Offers, err)
	}
	if org, err := operator.TrustOrg(t.Context(), "acme", true); err != nil || !org.Trusted {
		t.Fatalf("got %+v, %v", org, err)
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
	checkImageNode(t, c, api, start)
}

// checkImageNode executes an image where it already is.
func checkImageNode(t *testing.T, c *nodetest.Cluster, api *client.Client, start client.StartImage) {
	t.Helper()
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	var with []string // Nodes with the image.
	nodetest.Eventually(t, endWait, "a node to say that it has the image", func() bool {
		nodes, err := operator.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if slices.Contains(n.Offers, compute.ImageOffer(start.Image)) {
				with = append(with, n.Name)
			}
		}
		return len(with) > 0
	})
	started, err := api.SubmitImage(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.Metadata == nil || e.Metadata.Node == nil || !slices.Contains(with, *e.Metadata.Node) {
		t.Errorf("it was executed on %+v, and the image is on %q", e.Metadata, with)
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
	start.File = "services:\n  a:\n    image: x\n    privileged: true\n"
	if _, err = api.SubmitCompose(t.Context(), start); err == nil || !strings.Contains(err.Error(), "line 4, column 5") {
		t.Errorf("a privileged service: %v", err)
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
