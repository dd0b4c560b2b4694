package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/compute"
	"berth/node/config"
	"berth/node/executor/prepare"
	"berth/node/inference/engine"
	"berth/node/inference/enginemetrics"
	"berth/node/inference/weights"
	"berth/node/router"
	"berth/node/worker"
)

const (
	modelsDirName = "models"
	modelAt       = "/model" // Path of its files in the sandbox of an engine.

	hubConnect = 10 * time.Second // For the connection to a hub, and for its TLS handshake.
	hubHeader  = time.Minute      // For a hub to answer.
	sizeWait   = 3 * time.Second  // For it to say how large a model is, while a client waits.
)

// openEngines reads which engines serve models.
func (n *Node) openEngines() (err error) {
	n.engines, err = engine.NewSet(n.cfg.Inference.Engines)
	return err
}

// imageOffers returns the offers of the engines that this node starts in containers. The others
// are the node's other offers, by which it can start containers or not.
func (n *Node) imageOffers(others []compute.Offer) (offers []compute.Offer) {
	if !slices.Contains(others, compute.DockerOffer(true)) {
		return nil
	}
	for _, e := range n.engines.All() {
		if e.Image != "" {
			offers = append(offers, compute.InferenceOffer(e.Name))
		}
	}
	return offers
}

// programOffers returns the offers of the engines of which this node has the programs.
func (n *Node) programOffers() (offers []compute.Offer) {
	programs := prepare.NewPrograms(n.prepareConfig())
	for _, e := range n.engines.All() {
		if e.Image != "" {
			continue
		}
		needs := e.Needs
		if len(needs) == 0 {
			needs = e.Command[:1]
		}
		at := slices.IndexFunc(needs, func(name string) bool { return !programs.Has(name, e.Env["PATH"], e.Dirs) })
		if at < 0 {
			offers = append(offers, compute.InferenceOffer(e.Name))
			continue
		}
		if found := programs.Path(needs[at]); found != "" {
			n.logger.Warn("engine not offered", "detail", e.Name, "path", found,
				"hint", "sandboxes do not have the program: in inference.engines give the engine its path as command, "+
					"and the directories that it and its interpreter need as dirs")
		}
	}
	return offers
}

// modelSources returns where this node finds models.
func (n *Node) modelSources() weights.Config {
	cfg := weights.Config{
		Dir: filepath.Join(n.cfg.DataDir, modelsDirName), Models: n.cfg.Inference.Models,
		KeepMiB: n.cfg.Inference.CacheMiB, InUse: n.modelsInUse, Unverified: n.cfg.Inference.Unverified,
		Logger: n.logger.With("part", "models"), Now: n.opts.Now,
	}
	switch {
	case n.objects != nil:
		cfg.Stored = orgModels{n}
	case n.isWorker():
		cfg.Stored = workerModels{worker.Models{Up: n.cluster, Own: n.own}, cfg.Logger}
	}
	if n.cfg.Inference.Hub != config.HubOff {
		cfg.Sources = append(cfg.Sources, &weights.Hub{
			URL: strings.TrimRight(n.cfg.Inference.Hub, "/"),
			Client: &http.Client{Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: hubHeader, DisableCompression: true,
				DialContext: (&net.Dialer{Timeout: hubConnect}).DialContext, TLSHandshakeTimeout: hubConnect,
				ForceAttemptHTTP2: true, // Which a dialer would disable.
			}},
		})
	}
	return cfg
}

// models returns the function that starts the engines of this node. Credentials
// returns the token for the hub.
func (n *Node) models(credentials prepare.Credentials) prepare.Models {
	store := weights.New(n.modelSources())
	return func(ctx context.Context, w compute.Work, say func(string)) (prepare.Launch, error) {
		return n.launch(ctx, store, w, credentials, say)
	}
}

// modelsInUse returns the models of the live attempts of this node. The version is known
// once an attempt is about to start.
func (n *Node) modelsInUse() (all []weights.Use) {
	for _, w := range n.work() {
		if x := w.Execution; x.Inference != nil {
			dir, _ := n.executor.ModelDir(x.ID, w.Attempt.Epoch, modelAt)
			all = append(all, weights.Use{Name: x.Inference.Model, Dir: dir})
		}
	}
	return all
}

// launch brings the model of a replica to this node, and returns how its engine is
// started.
func (n *Node) launch(
	ctx context.Context, store *weights.Store, w compute.Work, credentials prepare.Credentials, say func(string),
) (prepare.Launch, error) {
	x := w.Execution
	e, ok := n.engines.Get(x.Inference.Engine)
	if !ok {
		return prepare.Launch{}, compute.Errorf(compute.CodeUnavailable,
			"this node has no engine %q any more", x.Inference.Engine)
	}
	want := weights.Want{Name: x.Inference.Model, Org: x.Org}
	if len(x.Inference.Token) > 0 {
		given, err := credentials(ctx, w)
		if err != nil {
			return prepare.Launch{}, fmt.Errorf("open hf_token: %w", err)
		}
		if given != nil {
			want.Token = given.Password
		}
	}
	m, err := store.Get(ctx, want, e.Formats, say)
	if err != nil {
		return prepare.Launch{}, err
	}
	with := engine.Launch{
		ModelPath: modelAt, Model: x.Inference.Model, Deployment: x.Parent.String(),
		Port: x.Serving.Port, GPUs: len(w.Attempt.GPUs), Args: x.Inference.Args,
	}
	if m.File != "" {
		with.ModelPath += "/" + m.File
	}
	out := prepare.Launch{Env: e.Variables(with), Binds: []prepare.Bind{{Source: m.Dir, Target: modelAt}}}
	for _, dir := range e.Dirs {
		out.Binds = append(out.Binds, prepare.Bind{Source: dir, Target: dir})
	}
	out.Argv, err = e.Argv(with)
	return out, err
}

// readEngines reads the figures of the engines on this node, until ctx ends.
func (n *Node) readEngines(ctx context.Context) error {
	r := enginemetrics.New(enginemetrics.Config{Targets: n.readyEngines, Logger: n.logger.With("part", "engine metrics")})
	n.registry.MustRegister(r)
	return r.Run(ctx)
}

// readyEngines returns the replicas on this node that are ready and have metrics.
func (n *Node) readyEngines() (all []enginemetrics.Target) {
	for _, w := range n.work() {
		x, epoch := w.Execution, w.Attempt.Epoch
		if x.Inference == nil || !n.executor.Ready(x.ID, epoch) {
			continue
		}
		if e, ok := n.engines.Get(x.Inference.Engine); ok && e.MetricsPath != "" {
			all = append(all, enginemetrics.Target{
				Deployment: x.Parent.String(), Engine: e.Name, Replica: x.ID.String(), Path: e.MetricsPath,
				Dial: func() (net.Conn, error) { return servicePorts{n}.dialOwn(x.ID, epoch) },
			})
		}
	}
	return all
}

// inference returns how the API deploys models.
func (n *Node) inference() handler.Inference {
	out := handler.Inference{
		Starts: n.cfg.Inference.Starts, ValidModel: weights.ValidName,
		Args: func(name, text string) ([]string, error) {
			e, ok := n.engines.Get(name)
			if !ok {
				return nil, compute.Errorf(compute.CodeInvalid, "there is no engine %q", name).Named("unknown_engine")
			}
			return e.Args(text)
		},
	}
	store := weights.New(n.modelSources())
	out.Size = func(ctx context.Context, m handler.Weights) (int64, bool) {
		e, ok := n.engines.Get(m.Engine)
		if !ok {
			return 0, false
		}
		ctx, cancel := context.WithTimeout(ctx, sizeWait)
		defer cancel()
		p := weights.Precision{Quantization: m.Quantization, DType: m.DType}
		if p.DType == "" && e.Takes("--dtype") {
			p.DType = "auto" // As vLLM and SGLang do.
		}
		return store.Size(ctx, weights.Want{Name: m.Model, Org: m.Org, Token: m.Token}, e.Formats, p)
	}
	for _, e := range n.engines.All() {
		out.Engines = append(out.Engines, handler.Engine{
			Name: e.Name, Image: e.Image, HealthPath: e.HealthPath, GPU: e.GPU, StartLimit: e.StartLimit,
		})
	}
	return out
}

// modelQueues returns how requests to models are let in.
func (n *Node) modelQueues() router.Queues {
	return router.Queues{
		Concurrency: func(i *compute.Inference) int {
			if e, ok := n.engines.Get(i.Engine); ok {
				return e.Places(i.Args)
			}
			return engine.DefaultConcurrency // Another node has it.
		},
		Most: n.cfg.Inference.Queue, Wait: n.cfg.Inference.QueueWait,
	}
}

// modelLimits returns the limits of requests to models.
func (n *Node) modelLimits() edge.ModelLimits {
	c := n.cfg.Inference
	return edge.ModelLimits{
		PerMinute: c.PerMinute, InFlight: int64(c.OrgInFlight), ResumeWait: c.ResumeWait, AnswerWait: c.AnswerWait,
	}
}
