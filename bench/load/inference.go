package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/usage"
	"berth/compute"
	"berth/loop"
)

// Deployments of the measurement.
const (
	echoModel   = "bench/echo"
	llamaModel  = "bench/llama"
	turnsModel  = "bench/echo"
	dedicated   = "dedicated" // Stands for all deployments in the metrics of nodes.
	affinityOn  = 4           // Replicas among which conversations are shared.
	streamSteps = 10
	stepPause   = 20 // Milliseconds between the events of a stream.
	llamaTokens = 16
	llamaUsers  = 4
	readyWait   = 2 * time.Minute
)

// InferenceConfig configures a measurement of answers by models.
type InferenceConfig struct {
	Streams       int // Streams at once whose first events are timed.
	For           time.Duration
	Open          int // Streams that stay open.
	Conversations int
	Turns         int    // Turns of each conversation.
	Engine        string // The cluster's echo engine.
	NarrowEngine  string // An echo engine with few places.
	Places        int    // Number of places of NarrowEngine.
	Crowd         int    // Requests that one organization has under way beside another.
	Direct        string // URL of another echo engine, which is asked directly.

	// LlamaEngine and LlamaDirect are like Engine and Direct, for an engine that
	// computes; empty for none.
	LlamaEngine string
	LlamaDirect string
}

// Inference has the measurements of a node that answers for models.
type Inference struct {
	Direct     Answers    `json:"direct"`
	Own        Answers    `json:"own_node"`     // Asked of the node that runs the replica.
	Hop        Answers    `json:"another_node"` // Asked of another one.
	OverheadMS Overhead   `json:"overhead_ms"`  // Overhead of the first event, by the replica's own node.
	HopMS      Overhead   `json:"hop_overhead_ms"`
	Open       OpenMemory `json:"open_streams"`
	Affinity   Affinity   `json:"affinity"`
	Turns      Turns      `json:"turns"`
	Step       Step       `json:"step"`
	Llama      *Llama     `json:"llama,omitempty"`
}

// Answers are times and rates of one way to ask.
type Answers struct {
	First     Spread  `json:"first_event"`
	PerSecond float64 `json:"short_answers_per_s"`
	CPUMS     float64 `json:"cpu_ms"` // CPU time of all nodes, for each short answer.
}

// Overhead is the delay compared with asking the engine directly.
type Overhead struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// OpenMemory is the memory of a node with open streams.
type OpenMemory struct {
	Streams   int     `json:"streams"`
	BeforeMiB float64 `json:"before_mib"`
	WithMiB   float64 `json:"with_mib"`
}

// Affinity is how often a replica has had a conversation before, of the turns that are
// not the first.
type Affinity struct {
	Replicas int     `json:"replicas"`
	Hits     float64 `json:"hits"`
	Random   float64 `json:"random"` // Expected of replicas chosen at random.
}

// Llama has the measurements of an engine that computes.
type Llama struct {
	DirectPS float64 `json:"direct_tokens_per_s"`
	RoutedPS float64 `json:"routed_tokens_per_s"`
}

// inferring is one measurement.
type inferring struct {
	*Cluster

	cfg  InferenceConfig
	user *client.Client
	http *http.Client
}

// MeasureInference deploys models and asks them through nodes, and an engine directly.
func MeasureInference(ctx context.Context, c *Cluster, cfg InferenceConfig) (out Inference, err error) {
	user, err := c.client(c.APIKey)
	if err != nil {
		return out, err
	}
	m := &inferring{c, cfg, user, &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: max(4*cfg.Streams, cfg.Crowd), DisableCompression: true,
	}}}
	defer m.http.CloseIdleConnections()
	echo, own, other, err := m.deploy(ctx, echoModel, cfg.Engine, 1)
	if err != nil {
		return out, err
	}
	for _, way := range []struct {
		answers *Answers
		at      target
	}{
		{&out.Direct, target{cfg.Direct + "/v1", echo, ""}},
		{&out.Own, target{own.URL + "/openai/v1", echo, c.APIKey}},
		{&out.Hop, target{other.URL + "/openai/v1", echo, c.APIKey}},
	} {
		if *way.answers, err = m.answers(ctx, way.at); err != nil {
			return out, fmt.Errorf("ask %s: %w", way.at.base, err)
		}
	}
	out.OverheadMS, out.HopMS = over(out.Own, out.Direct), over(out.Hop, out.Direct)
	if out.Open, err = m.open(ctx, *own, target{own.URL + "/openai/v1", echo, c.APIKey}); err != nil {
		return out, fmt.Errorf("hold streams open: %w", err)
	}
	if err := m.remove(ctx, echo); err != nil {
		return out, err
	}
	if out.Affinity, err = m.affinity(ctx); err != nil {
		return out, err
	}
	if out.Turns, err = m.turns(ctx); err != nil {
		return out, fmt.Errorf("measure turns: %w", err)
	}
	if out.Step, err = m.step(ctx); err != nil {
		return out, fmt.Errorf("measure a step in load: %w", err)
	}
	if cfg.LlamaEngine == "" {
		return out, nil
	}
	out.Llama, err = m.llama(ctx)
	return out, err
}

func over(through, direct Answers) Overhead {
	return Overhead{P50: through.First.P50MS - direct.First.P50MS, P99: through.First.P99MS - direct.First.P99MS}
}

// target is a model at a URL, and the key to ask it.
type target struct {
	base  string // URL.
	model string
	key   string
}

// deploy deploys a model, and returns its name, the node of its first replica and
// another one.
func (m *inferring) deploy(
	ctx context.Context, model, engine string, replicas int,
) (id string, own, other *Node, err error) {
	return m.deployAs(ctx, wire.DeploymentCreate{
		Model: model, Engine: engine, GPUType: "cpu", GPUCount: 1, TargetRPS: 1e6, TargetP95: 3_600_000, Window: 3600,
		MinReplicas: replicas, MaxReplicas: replicas,
	}, replicas)
}

// deployAs creates the given deployment, waits for its replicas, and returns as deploy.
func (m *inferring) deployAs(
	ctx context.Context, asked wire.DeploymentCreate, replicas int,
) (id string, own, other *Node, err error) {
	model := asked.Model
	d, err := m.user.Deploy(ctx, asked)
	if err != nil {
		return "", nil, nil, fmt.Errorf("deploy %s: %w", model, err)
	}
	row, err := m.ready(ctx, d.ID, replicas)
	if err != nil {
		return "", nil, nil, fmt.Errorf("deploy %s: %w", model, err)
	}
	for i := range m.Nodes {
		if n := &m.Nodes[i]; row.Node != nil && *row.Node == n.Name {
			own = n
		} else {
			other = n
		}
	}
	if own == nil || other == nil {
		return "", nil, nil, errors.New("the node of the replica is not known")
	}
	return d.ID.String(), own, other, nil
}

// ready waits until replicas are ready, and returns the first one.
func (m *inferring) ready(
	ctx context.Context, id compute.ExecutionID, replicas int,
) (row wire.ServiceReplica, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		d, err := m.user.Deployment(ctx, id)
		switch {
		case err != nil:
			return row, err
		case d.Status == "failed":
			return row, fmt.Errorf("it failed: %s", strings.Join(d.EngineOutput, "; "))
		case d.Ready == replicas:
			return d.Rows[0], nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return row, fmt.Errorf("it is %s: %w", d.Status, ctx.Err())
		}
	}
}

func (m *inferring) remove(ctx context.Context, id string) error {
	parsed, err := compute.ParseExecutionID(id)
	if err != nil {
		return err
	}
	_, err = m.user.DeleteDeployment(ctx, parsed)
	return err
}

// answers measures streams and short answers.
func (m *inferring) answers(ctx context.Context, at target) (out Answers, err error) {
	begun := time.Now() //nolint:forbidigo // Real processes have real time.
	during := func() bool { return time.Since(begun) < m.cfg.For }
	var mu sync.Mutex
	var first []time.Duration
	var begins atomic.Int64
	if _, err := times(ctx, m.cfg.Streams, during, func(ctx context.Context) error {
		// All streams take as long: those that begin together would always do so, and wait for each other.
		if n := int(begins.Add(1)); n <= m.cfg.Streams {
			loop.Sleep(ctx, time.Duration(n)*streamSteps*stepPause*time.Millisecond/time.Duration(m.cfg.Streams))
		}
		took, err := m.stream(ctx, at)
		mu.Lock()
		defer mu.Unlock()
		first = append(first, took)
		return err
	}); err != nil {
		return out, err
	}
	out.First = spreadOf(first)
	begun = time.Now() //nolint:forbidigo // Real processes have real time.
	var took []time.Duration
	spent, err := m.spent(func() (err error) {
		took, err = times(ctx, m.cfg.Streams, during, func(ctx context.Context) error {
			_, err := m.ask(ctx, at, says("hello"))
			return err
		})
		return err
	})
	if err != nil || len(took) == 0 {
		return out, err
	}
	out.PerSecond = float64(len(took)) / time.Since(begun).Seconds()
	out.CPUMS = float64(spent.Microseconds()) / 1000 / float64(len(took))
	return out, nil
}

// post asks a model. The caller closes the answer's body.
func (m *inferring) post(ctx context.Context, at target, path string, body map[string]any) (*http.Response, error) {
	body["model"] = at.model
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.base+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+at.key)
	answer, err := m.http.Do(req)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return nil, fmt.Errorf("answered %s: %s", answer.Status, text)
	}
	return answer, nil
}

// message is one message of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func says(text string) []message { return []message{{"user", text}} }

// stream reads a stream to its end and returns when its first event came.
func (m *inferring) stream(ctx context.Context, at target) (time.Duration, error) {
	return m.streamOf(ctx, at, streamSteps)
}

// streamOf is stream of so many events.
func (m *inferring) streamOf(ctx context.Context, at target, events int) (time.Duration, error) {
	begun := time.Now() //nolint:forbidigo // Real processes have real time.
	answer, err := m.post(ctx, at, "/chat/completions", map[string]any{
		"messages": says("hello"), "stream": true, "max_tokens": events, "pause_ms": stepPause,
	})
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	r := bufio.NewReader(answer.Body)
	if _, err := r.ReadString('\n'); err != nil {
		return 0, fmt.Errorf("read stream: %w", err)
	}
	first := time.Since(begun)
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Contains(rest, []byte("[DONE]")) {
		end := rest[max(len(rest)-200, 0):]
		return 0, fmt.Errorf("the stream ends with %q: %w", end, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return first, nil
}

// ask reads a short answer, which says whether its replica has had the conversation.
func (m *inferring) ask(ctx context.Context, at target, talk []message) (hit bool, err error) {
	answer, err := m.post(ctx, at, "/chat/completions", map[string]any{"messages": talk})
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	var got struct{ Hit bool }
	err = json.NewDecoder(answer.Body).Decode(&got)
	_, _ = io.Copy(io.Discard, answer.Body) // So that the connection is used again.
	return got.Hit, err
}

// open holds streams open and measures the memory of the node that is asked.
func (m *inferring) open(ctx context.Context, n Node, at target) (out OpenMemory, err error) {
	before, err := usage.Read(n.PID)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	left := upTo(m.cfg.Open)
	if _, err := times(ctx, m.cfg.Streams, left, func(context.Context) error {
		body := map[string]any{"messages": says("hello"), "stream": true}
		answer, err := m.post(ctx, at, "/chat/completions", body) //nolint:bodyclose // It ends with ctx.
		if err != nil {
			return err
		}
		_, err = io.ReadFull(answer.Body, make([]byte, 1))
		return err
	}); err != nil {
		return out, err
	}
	streams, err := m.underWay(ctx, &n, dedicated)
	if err != nil {
		return out, err
	}
	if streams < m.cfg.Open {
		return out, fmt.Errorf("only %d of %d streams are open", streams, m.cfg.Open)
	}
	with, err := usage.Read(n.PID)
	const mib = 1 << 20
	return OpenMemory{streams, float64(before.Resident) / mib, float64(with.Resident) / mib}, err
}

// affinity has conversations of several turns, all at once.
func (m *inferring) affinity(ctx context.Context) (out Affinity, err error) {
	id, _, other, err := m.deploy(ctx, echoModel, m.cfg.Engine, affinityOn)
	if err != nil {
		return out, err
	}
	at := target{other.URL + "/openai/v1", id, m.APIKey}
	hits, later := 0, 0
	var mu sync.Mutex
	next := upTo(m.cfg.Conversations)
	serial := 0
	if _, err := times(ctx, m.cfg.Streams, next, func(ctx context.Context) error {
		mu.Lock()
		serial++
		talk := says(fmt.Sprintf("conversation %d", serial))
		mu.Unlock()
		for turn := range m.cfg.Turns {
			hit, err := m.ask(ctx, at, talk)
			if err != nil {
				return err
			}
			talk = append(talk, message{"assistant", "echo"}, message{"user", "and then?"})
			mu.Lock()
			if turn > 0 {
				later++
				if hit {
					hits++
				}
			}
			mu.Unlock()
		}
		return nil
	}); err != nil {
		return out, err
	}
	out = Affinity{Replicas: affinityOn, Hits: float64(hits) / float64(max(later, 1))}
	for turn := 1; turn < m.cfg.Turns; turn++ {
		out.Random += (1 - math.Pow(1-1/float64(affinityOn), float64(turn))) / float64(m.cfg.Turns-1)
	}
	return out, m.remove(ctx, id)
}

// llama asks an engine that computes, directly and through a node.
func (m *inferring) llama(ctx context.Context) (*Llama, error) {
	id, own, _, err := m.deploy(ctx, llamaModel, m.cfg.LlamaEngine, 1)
	if err != nil {
		return nil, err
	}
	out := &Llama{}
	for _, way := range []struct {
		rate *float64
		at   target
	}{
		{&out.DirectPS, target{m.cfg.LlamaDirect + "/v1", id, ""}},
		{&out.RoutedPS, target{own.URL + "/openai/v1", id, m.APIKey}},
	} {
		begun := time.Now() //nolint:forbidigo // Real processes have real time.
		during := func() bool { return time.Since(begun) < m.cfg.For }
		var tokens atomic.Int64
		if _, err := times(ctx, llamaUsers, during, func(ctx context.Context) error {
			n, err := m.complete(ctx, way.at)
			tokens.Add(n)
			return err
		}); err != nil {
			return nil, fmt.Errorf("ask %s: %w", way.at.base, err)
		}
		*way.rate = float64(tokens.Load()) / time.Since(begun).Seconds()
	}
	return out, m.remove(ctx, id)
}

// complete asks for a completion, and returns how many tokens the engine says it has.
func (m *inferring) complete(ctx context.Context, at target) (tokens int64, err error) {
	answer, err := m.post(ctx, at, "/completions", map[string]any{"prompt": "hello", "max_tokens": llamaTokens})
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var got struct {
		Usage struct {
			Completion int64 `json:"completion_tokens"`
		}
	}
	err = json.NewDecoder(answer.Body).Decode(&got)
	_, _ = io.Copy(io.Discard, answer.Body) // So that the connection is used again.
	return got.Usage.Completion, err
}
