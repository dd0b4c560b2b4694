package node_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dockerclient "github.com/moby/moby/client"

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
	mustHaveNone(t, c.Nodes, canary)
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

// awsKey is the key that the ECR of newECR knows.
const awsKey = "AKIATESTTESTTESTTEST"

// ecr answers as Amazon ECR does.
type ecr struct {
	*httptest.Server
	token string // For the registry.

	asked atomic.Int64 // How often it gave the token.
}

// Secrets of an AWS key.
const (
	awsSecret  = "aws-s3cret-1f0c8e"
	awsSession = "aws-s3ssion-77d2b4"
)

// newECR returns an ECR that gives the user and the password of a registry to those that
// have awsKey.
func newECR(t *testing.T, user, password string) *ecr {
	t.Helper()
	e := &ecr{token: base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetAuthorizationToken") || r.Header.Get("X-Amz-Security-Token") != awsSession ||
			!strings.Contains(auth, "Credential="+awsKey+"/") || !strings.Contains(auth, "/eu-north-1/ecr/aws4_request") {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"__type":"UnrecognizedClientException","message":"The key is unknown."}`)
			return
		}
		e.asked.Add(1)
		fmt.Fprintf(w, `{"authorizationData":[{"authorizationToken":%q}]}`, e.token)
	}))
	t.Cleanup(e.Close)
	return e
}

// secrets are what nobody may store or log in clear text.
func (e *ecr) secrets() []string { return []string{e.token, awsSecret, awsSession} }

// checkAWSKey pulls an image with an AWS key, which is exchanged for a password, and is refused
// with a key that Amazon does not know. Neither is in a file of any node.
func checkAWSKey(t *testing.T, c *nodetest.Cluster, api *client.Client, registry *dockertest.Registry, e *ecr) {
	ref := registry.Push(t, "team/aws", "1")
	t.Cleanup(func() { dockertest.Remove(t, ref) })
	start := client.StartImage{Image: ref, RunCommand: []string{"print", "from ECR"}}
	start.Registry = client.Registry{
		CredentialType: "aws", AWSKeyID: "AKIAUNKNOWN", AWSSecret: awsSecret, AWSSession: awsSession, AWSRegion: "eu-north-1",
	}
	got := mustFinish(t, api, mustSubmitImage(t, api, start))
	if got.Status != compute.StatusFailed || got.StatusDetails == nil || *got.StatusDetails != "image" || got.Billed == nil || *got.Billed != 0 ||
		got.ErrorsDocker == nil || !strings.Contains(*got.ErrorsDocker, "The key is unknown.") {
		t.Errorf("with an unknown key it is %v, errors %v, billed %v", got.Status, got.Errors, got.Billed)
	}
	start.AWSKeyID = awsKey
	got = mustFinish(t, api, mustSubmitImage(t, api, start))
	if got.Status != compute.StatusCompleted || got.Stdout != "from ECR\n" || e.asked.Load() != 1 {
		t.Errorf("with a key it is %v with output %q, errors %v, after %d tokens", got.Status, got.Stdout, got.Errors, e.asked.Load())
	}
	checkComposeAWSKey(t, api, registry, e, start.Registry)
	mustHaveNone(t, c.Nodes, append(e.secrets(), canary)...)
}

// checkComposeAWSKey executes a Compose file of which one service has an image that is pulled
// with an AWS key, and is refused with one that Amazon does not know. The file knows neither
// the key nor the password.
func checkComposeAWSKey(t *testing.T, api *client.Client, registry *dockertest.Registry, e *ecr, credentials client.Registry) {
	t.Helper()
	ref := registry.Push(t, "team/aws-composed", "1")
	t.Cleanup(func() { dockertest.Remove(t, ref) })
	start := client.StartCompose{Registry: credentials, File: "services:\n  own: {image: $PRIVATE, command: [print, from, ECR]}\n" +
		"  other: {image: $PUBLIC, command: [env], depends_on: {own: {condition: service_completed_successfully}}}\n"}
	start.Env = map[string]string{"PRIVATE": ref, "PUBLIC": dockertest.Image}
	for _, known := range []bool{false, true} {
		if start.AWSKeyID = "AKIAUNKNOWN"; known {
			start.AWSKeyID = awsKey
		}
		tokens := e.asked.Load()
		started, err := api.SubmitCompose(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		got := mustFinish(t, api, started.ExecutionID)
		if !known {
			if got.Status != compute.StatusFailed || got.StatusDetails == nil || *got.StatusDetails != "image" || got.Billed == nil || *got.Billed != 0 ||
				got.ErrorsDocker == nil || !strings.Contains(*got.ErrorsDocker, "The key is unknown.") || e.asked.Load() != tokens {
				t.Errorf("with an unknown key it is %v, errors %v, for Docker %v, billed %v", got.Status, got.Errors, got.ErrorsDocker, got.Billed)
			}
			continue
		}
		if got.Status != compute.StatusCompleted || !strings.Contains(got.Stdout, "| from ECR\n") || e.asked.Load() != tokens+1 {
			t.Errorf("with a key it is %v with output %q %q, errors %v, after %d tokens",
				got.Status, got.Stdout, got.Stderr, got.Errors, e.asked.Load()-tokens)
		}
		for _, text := range append(e.secrets(), canary, awsKey) {
			if strings.Contains(got.CombinedOutput+got.Code+strings.Join(got.Errors, " "), text) {
				t.Errorf("the record has %q", text)
			}
		}
	}
}

// mustHaveNone searches what nodes store for texts.
func mustHaveNone(t *testing.T, nodes []*nodetest.Node, texts ...string) {
	t.Helper()
	for _, n := range nodes {
		for _, text := range texts {
			if contains(t, n.Config.DataDir, text) {
				t.Errorf("a file of node %s has %q", n.Config.Name, text)
			}
		}
	}
}

// Sizes of the images of checkWorkerImages and of the list of the worker, which has space for
// one of them with the layer that all share.
const (
	largeImage      = 10 << 20
	workerImagesMiB = 22
)

// checkWorkerImages executes private images on a worker, which has space for one: those that
// are not in use leave it, and one that runs never does. Each node has the metrics of that one.
func checkWorkerImages(t *testing.T, c *nodetest.Cluster, account nodetest.Account, registry *dockertest.Registry) {
	worker := c.Nodes[3]
	drainNodes(t, c, false, worker)
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	credentials := client.Registry{CredentialType: "basic", Username: "ada", Password: canary}
	_, port, _ := strings.Cut(registry.Host, ":")
	repository := "worker" + port + "/" // No other test has such images on the engine.
	start := func(name string, command ...string) client.StartImage {
		t.Helper()
		s := client.StartImage{Image: registry.PushLarge(t, repository+name, "1", largeImage), RunCommand: command, Registry: credentials}
		t.Cleanup(func() { dockertest.Remove(t, s.Image) })
		s.ExecutionType = "b200"
		return s
	}
	held := start("held", "busy", "5")
	running := mustSubmitImage(t, api, held)
	container, _ := mustContainer(t, api, running)
	var refs []string
	for _, name := range []string{"second", "third"} {
		s := start(name, "print", name)
		e := mustFinish(t, api, mustSubmitImage(t, api, s))
		if e.Status != compute.StatusCompleted || e.Stdout != name+"\n" || e.Metadata.Node == nil || *e.Metadata.Node != worker.Config.Name {
			t.Errorf("it is %v with output %q on %v, errors %v", e.Status, e.Stdout, e.Metadata.Node, e.Errors)
		}
		refs = append(refs, s.Image)
	}
	operator := nodetest.MustClient(t, c.RootToken, c.Follower().URL())
	nodetest.Eventually(t, endWait, "the worker to have the image that runs and the newest one", func() bool {
		nodes, err := operator.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(nodes, func(n wire.Node) bool { return n.ID == worker.ID() })
		has := func(ref string) bool { return slices.Contains(nodes[i].Offers, compute.ImageOffer(ref)) }
		return has(held.Image) && !has(refs[0]) && has(refs[1])
	})
	for name, want := range map[string]int{"held": 1, "second": 0, "third": 1} {
		left, err := dockertest.Client(t).ImageList(t.Context(), dockerclient.ImageListOptions{
			Filters: make(dockerclient.Filters).Add("reference", "berth.pulled/"+repository+name),
		})
		if err != nil || len(left.Items) != want {
			t.Errorf("the engine has %d images %s, want %d: %v", len(left.Items), name, want, err)
		}
	}
	checkWorkerCompose(t, api, worker, registry, credentials)
	checkContainerMetrics(t, c, account, running)
	if again, _ := mustContainer(t, api, running); again != container {
		t.Errorf("the container was %s and is %s", container, again)
	}
	if err := api.Stop(t.Context(), running); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, running); e.Status != compute.StatusCancelled || e.ReturnCode == nil || *e.ReturnCode != 5 ||
		e.Stdout != "ready\nterminated\n" {
		t.Errorf("it is %v with code %v, output %q, errors %v", e.Status, e.ReturnCode, e.Stdout, e.Errors)
	}
	checkSameMetrics(t, c, account, running)
	mustHaveNone(t, []*nodetest.Node{worker}, canary)
	drainNodes(t, c, true, worker)
}

// checkWorkerCompose executes a Compose file with a private image on a worker.
func checkWorkerCompose(
	t *testing.T, api *client.Client, worker *nodetest.Node, registry *dockertest.Registry, credentials client.Registry,
) {
	t.Helper()
	ref := registry.Push(t, "team/composed", "1")
	t.Cleanup(func() { dockertest.Remove(t, ref) })
	start := client.StartCompose{Registry: credentials, File: "services:\n  a: {image: $IMAGE, command: [serve, '8000']}\n" +
		"  b: {image: $IMAGE, command: [ask, 'http://a:8000/hello', '7'], depends_on: [a]}\n"}
	start.Env, start.ExecutionType = map[string]string{"IMAGE": ref}, "b200"
	started, err := api.SubmitCompose(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	e := mustFinish(t, api, started.ExecutionID)
	if e.ReturnCode == nil || *e.ReturnCode != 7 || !strings.Contains(e.Stdout, "served /hello") ||
		e.Metadata.Node == nil || *e.Metadata.Node != worker.Config.Name {
		t.Errorf("it is %v with code %v on %v, output %q %q, errors %v", e.Status, e.ReturnCode, e.Metadata.Node, e.Stdout, e.Stderr, e.Errors)
	}
}

// checkContainerMetrics waits until a container that computes with a GPU is measured.
func checkContainerMetrics(t *testing.T, c *nodetest.Cluster, account nodetest.Account, id compute.ExecutionID) {
	t.Helper()
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	above := func(points []wire.MetricPoint) bool {
		return slices.ContainsFunc(points, func(p wire.MetricPoint) bool { return p.Value > 0 })
	}
	nodetest.Eventually(t, endWait, "a container with a busy GPU to be measured", func() bool {
		m, err := api.Metrics(t.Context(), id, client.MetricsQuery{Step: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return len(m.GPUUtilization) > 2 && above(m.GPUUtilization) && above(m.CPUUsage) && above(m.MemoryUsed) && above(m.GPUPower)
	})
}

// checkSameMetrics asks every node what an execution did that has ended.
func checkSameMetrics(t *testing.T, c *nodetest.Cluster, account nodetest.Account, id compute.ExecutionID) {
	t.Helper()
	nodetest.Eventually(t, endWait, "every node to answer the same", func() bool {
		var answers []wire.ExecutionMetrics
		for _, n := range c.Nodes {
			m, err := nodetest.MustClient(t, account.Key, n.URL()).Metrics(t.Context(), id, client.MetricsQuery{Step: time.Second})
			if err != nil {
				t.Fatalf("node %s: %v", n.Config.Name, err)
			}
			if len(m.Warnings) > 0 {
				return false // The worker did not answer in time.
			}
			answers = append(answers, m)
		}
		for _, m := range answers[1:] { // The last second may be written meanwhile.
			if !reflect.DeepEqual(m, answers[0]) {
				return false
			}
		}
		return len(answers[0].GPUUtilization) > 2
	})
}
