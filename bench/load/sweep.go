package load

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/client"
	"berth/loop"
)

// SweepConfig says how many clients ask at once, one level after another.
type SweepConfig struct {
	Clients  []int
	For      time.Duration // For each series of a level.
	Submits  int           // At most, at each level. An organization may queue 10,000.
	BareRaft float64       // Entries a second of Raft alone on this machine, measured before.
}

// Sweep has the rates at which three nodes answer more and more clients. The clients ask
// each node in turn.
type Sweep struct {
	BareRaftPS float64 `json:"bare_raft_per_s"`
	Levels     []Level `json:"levels"`
}

// Level is how fast they answer some clients at once.
type Level struct {
	Clients      int   `json:"clients"`
	Submits      Asked `json:"submits"`
	Linearizable Asked `json:"linearizable_status"`
	Stale        Asked `json:"stale_status"`
	Unknown      Asked `json:"unknown_credential"` // 401, and 429 past the limit of an address.
	Invalid      Asked `json:"invalid_body"`       // 422.
	Bare         Asked `json:"bare_fasthttp"`      // A server that only answers, in the process of the clients.
}

// Asked is a series of requests.
type Asked struct {
	PerSecond float64 `json:"per_second"`
	Allocs    float64 `json:"allocations"` // Allocations of all nodes, for each request; 0 for the bare server.
	Spread
}

// MeasureSweep drains all nodes, so that nothing starts, and asks them.
func MeasureSweep(ctx context.Context, c *Cluster, cfg SweepConfig) (out Sweep, err error) {
	user, err := c.client(c.APIKey)
	if err != nil {
		return out, err
	}
	if err := drainAll(ctx, c); err != nil {
		return out, err
	}
	queued, err := user.Submit(ctx, client.Start{Code: noop, Timeout: noopTimeout})
	if err != nil {
		return out, err
	}
	bare, stop, err := serveBare()
	if err != nil {
		return out, err
	}
	defer stop()
	submit, err := submitOf(c.APIKey)
	if err != nil {
		return out, err
	}
	read := func(path string) request { return readOf(c.APIKey, path) }
	status := apiRoot + "/execution/streaming/" + queued.ExecutionID.String() + "/status"
	out.BareRaftPS = cfg.BareRaft
	for _, clients := range cfg.Clients {
		level := Level{Clients: clients}
		for _, series := range []struct {
			into *Asked
			most int
			urls []string
			request
		}{
			{&level.Submits, cfg.Submits, c.urls(), submit},
			{&level.Linearizable, 0, c.urls(), read(status)},
			{&level.Stale, 0, c.urls(), read(status + "?consistency=stale")},
			{&level.Unknown, 0, c.urls(), request{
				method: http.MethodGet, path: status, token: strings.Repeat("x", len(c.APIKey)),
				wants: []int{http.StatusUnauthorized, http.StatusTooManyRequests},
			}},
			{&level.Invalid, 0, c.urls(), request{
				method: submit.method, path: submit.path, token: c.APIKey, body: `{"code":7}`,
				wants: []int{http.StatusUnprocessableEntity},
			}},
			{&level.Bare, 0, []string{bare}, read("/")},
		} {
			if *series.into, err = c.ask(ctx, series.urls, clients, cfg.For, series.most, series.request); err != nil {
				return out, fmt.Errorf("%d clients, %s %s: %w", clients, series.method, series.path, err)
			}
		}
		out.Levels = append(out.Levels, level)
	}
	return out, nil
}

// urls returns the addresses of all nodes.
func (c *Cluster) urls() (urls []string) {
	for _, n := range c.Nodes {
		urls = append(urls, n.URL)
	}
	return urls
}

// ask has clients send one request over and over, each to the next of the servers, for
// a time and, unless most is 0, no more than so often.
func (c *Cluster) ask(
	ctx context.Context, urls []string, clients int, during time.Duration, most int, r request,
) (out Asked, err error) {
	asked := newAsker(clients)
	defer asked.close()
	before, err := c.mallocs(ctx)
	if err != nil {
		return out, err
	}
	begun := time.Now() //nolint:forbidigo // Real processes have real time.
	left := upTo(most)
	more := func() bool { return time.Since(begun) < during && (most == 0 || left()) }
	turns := make(chan string, len(urls))
	for _, url := range urls {
		turns <- url
	}
	took, err := times(ctx, clients, more, func(context.Context) error {
		url := <-turns
		turns <- url
		one := r
		if r.method == http.MethodPost {
			one.op = rand.Text()
		}
		return asked.ask(url, one)
	})
	spent := time.Since(begun)
	if err != nil || len(took) == 0 {
		return out, err
	}
	after, err := c.mallocs(ctx)
	if err != nil {
		return out, err
	}
	out.PerSecond = float64(len(took)) / spent.Seconds()
	if len(urls) == len(c.Nodes) {
		out.Allocs = (after - before) / float64(len(took))
	}
	out.Spread = spreadOf(took)
	return out, nil
}

// mallocs returns how many objects all nodes have allocated so far.
func (c *Cluster) mallocs(ctx context.Context) (sum float64, err error) {
	for _, n := range c.Nodes {
		value, err := metricOf(ctx, n.URL, c.RootToken, mallocsMetric)
		for tries := 1; err != nil && tries < 50; tries++ { // A busy node refuses.
			if !loop.Sleep(ctx, 100*time.Millisecond) {
				return 0, ctx.Err()
			}
			value, err = metricOf(ctx, n.URL, c.RootToken, mallocsMetric)
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", n.Name, err)
		}
		sum += value
	}
	return sum, nil
}

// mallocsMetric is how many objects a node has allocated.
const mallocsMetric = "go_memstats_mallocs_total"

// metricOf returns the value of a metric of one node.
func metricOf(ctx context.Context, url, token, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics: answered %s", resp.Status)
	}
	return sampleOf(text, name)
}

// sampleOf returns the value of a metric, whose name has its labels.
func sampleOf(text []byte, name string) (float64, error) {
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte(name+" ")); ok {
			return strconv.ParseFloat(string(value), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// serveBare starts a server that answers every request with a few bytes. It returns
// its address and a function that ends it.
func serveBare() (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // It does not block.
	if err != nil {
		return "", nil, err
	}
	server := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.SetBodyString(`{"status":"queued"}`) }}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() { _ = server.Shutdown() }, nil
}
