package node

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"berth/api"
	"berth/api/edge"
	"berth/api/handler"
	"berth/cluster"
	"berth/cluster/replica"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/gpu"
	"berth/node/config"
	"berth/node/executor"
	"berth/node/executor/inputs"
	"berth/node/executor/packages"
	"berth/node/executor/prepare"
	"berth/node/explain"
	"berth/node/leader"
	"berth/node/repair"
	"berth/node/router"
	"berth/node/worker"
	"berth/scheduler"
	"berth/scheduler/selection"
	"berth/scheduler/selection/chart"
)

// maxTokenFile is the largest token file that is read.
const maxTokenFile = 4 << 10

// openDevices finds the GPUs. The node knows them before it joins.
func (n *Node) openDevices(ctx context.Context) error {
	n.loads = &gpuLoads{now: n.opts.Now, last: map[gpuHolder]cpuMark{}, work: n.work}
	source, err := gpu.Open(gpu.Config{
		Source: n.cfg.GPUs.Source, File: n.cfg.GPUs.File, Simulated: n.cfg.GPUs.Simulated,
		NodeName: n.cfg.Name, Load: n.loads.of, Now: n.opts.Now, Logger: n.logger,
	})
	if err != nil {
		return fmt.Errorf("open devices: %w", err)
	}
	n.onClose(source.Close)
	gaps, err := prepare.Gaps()
	if err != nil {
		return fmt.Errorf("find gaps: %w", err)
	}
	if err := n.openEngines(); err != nil {
		return err
	}
	scratchMiB, volumes := prepare.Offers(n.prepareConfig())
	volumes = append(volumes, n.programOffers()...)
	n.environments = newEnvironments(n.logger.With("part", "environments"))
	n.environments.changed = func(ctx context.Context) { n.devices.Poll(ctx) }
	offers := func() gpu.Offered {
		engine, fault := n.executor.Engine()
		all := slices.Concat(volumes, engine, n.imageOffers(engine), n.environments.Offers(), n.executor.Images())
		slices.Sort(all)
		return gpu.Offered{ScratchMiB: scratchMiB, Offers: slices.Compact(all), EngineFault: fault}
	}
	n.devices = gpu.NewWatcher(gpu.WatcherConfig{
		Source: source, Gaps: gaps, Offers: offers,
		Now: n.opts.Now, Logger: n.logger,
	})
	n.devices.Poll(ctx)
	inventory := func() []compute.GPU { return n.devices.Current().GPUs }
	n.sampler = gpu.NewSampler(gpu.SamplerConfig{Source: source, Devices: inventory, Logger: n.logger})
	n.usages = &gpuUsages{sampler: n.sampler, live: map[attemptKey]watched{}}
	n.registry.MustRegister(
		brakeGauge(n.machine),
		buildInfo(n.opts.Version, n.opts.Build),
		leaderGauge(func() bool { return n.knowsLeader() }),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gpu.NewCollector(gpu.CollectorConfig{
			Hostname: n.cfg.Name, Devices: inventory, Last: n.sampler.Last, Allocated: n.allocated,
			Holders: n.holders,
		}),
	)
	if n.isWorker() {
		return nil
	}
	n.registry.MustRegister(newReplicaCollector(n.machine))
	return n.machine.Register(n.registry)
}

// work returns the live attempts of this node, as far as it knows.
func (n *Node) work() []compute.Work {
	if n.isWorker() {
		work, _ := n.own.Current()
		return work
	}
	return n.machine.View().Work(n.cluster.ID())
}

// holders returns the shares of this node's devices that its live attempts
// hold.
func (n *Node) holders() (all []gpu.Holder) {
	if n.cluster == nil {
		return nil // It is not open yet.
	}
	for _, w := range n.work() {
		for _, share := range w.Attempt.GPUs {
			all = append(all, gpu.Holder{
				GPU: share.GPU, Milli: share.Milli, Org: w.Execution.Org, Kind: w.Execution.Kind,
			})
		}
	}
	return all
}

// allocated returns how many thousandths of a device attempts hold.
func (n *Node) allocated(id compute.GPUID) int {
	if n.isWorker() {
		return n.own.Held(id)
	}
	record, ok := n.machine.View().Node(n.cluster.ID())
	if !ok {
		return 0
	}
	for _, g := range record.GPUs {
		if g.ID == id {
			return g.UsedMilli
		}
	}
	return 0
}

// openCluster makes or joins the cluster.
func (n *Node) openCluster(ctx context.Context) (err error) {
	token, err := readToken(n.cfg.Join.TokenFile)
	if err != nil {
		return err
	}
	cfg := cluster.Config{
		DataDir:           n.cfg.DataDir,
		Name:              n.cfg.Name,
		Role:              n.role(),
		Listen:            n.cfg.RPC.Addr,
		GossipListen:      n.cfg.Gossip.Addr,
		Advertise:         n.cfg.Advertise,
		API:               n.urls.api,
		Metrics:           n.urls.metrics,
		Version:           n.opts.Version,
		Format:            n.opts.Format,
		Bootstrap:         len(n.cfg.Join.Hosts) == 0,
		JoinHosts:         n.cfg.Join.Hosts,
		JoinToken:         token,
		Voters:            n.cfg.Voters,
		Profile:           n.cfg.Raft.Profile,
		PromoteAfter:      n.opts.PromoteAfter,
		ReplaceAfter:      n.cfg.Raft.ReplaceAfter,
		ScrubEvery:        n.cfg.Storage.ScrubEvery,
		Ballast:           n.opts.Ballast,
		FSM:               n.machine,
		StateCluster:      func() compute.UUID { return n.machine.View().ClusterID() },
		CheckState:        n.machine.Recount,
		StateMarks:        n.stateMarks,
		Preamble:          stamp,
		StateTime:         func() time.Time { return n.machine.View().Now().Time() },
		AllowedOnFullDisk: command.AllowedOnFullDisk,
		Registry:          registry{n.proposer()},
		Directory:         directory{n.machine},
		ServerSecrets: func() []byte {
			return n.master.Bytes()
		},
		Accept:     n.importMaster,
		Logger:     n.logger,
		Registerer: n.registry,
		Now:        n.opts.Now,
		Fatal:      n.opts.Fatal,
	}
	if n.isWorker() {
		cfg.FSM, cfg.StateCluster, cfg.CheckState, cfg.StateMarks, cfg.Preamble = nil, nil, nil, nil, nil
		cfg.StateTime = nil
		cfg.Registry, cfg.Directory, cfg.Accept = nil, nil, nil
		cfg.Bootstrap = false
	}
	if err := repair.Guard(n.machine, n.cfg.DataDir, n.logger, n.endPoisoned); err != nil {
		return err
	}
	if n.cluster, err = cluster.Open(ctx, cfg); err != nil {
		return fmt.Errorf("open cluster: %w", err)
	}
	n.onClose(n.cluster.Close)
	if n.isWorker() {
		n.own = worker.NewAssignments(n.cluster)
	}
	return nil
}

// endPoisoned ends the process at an entry that cannot be applied.
func (n *Node) endPoisoned(p *fsm.PoisonError, advice error) {
	// The log may hang, with the disk for example.
	within(lastLogWait, func() { n.logger.Error("entry not applied", "index", p.Index, "err", string(p.Stack)) })
	n.opts.Fatal(advice)
}

// stateMarks returns the hashes by which this replica is compared with others.
func (n *Node) stateMarks() []replica.StateMark {
	marks := n.machine.Checkpoints()
	out := make([]replica.StateMark, len(marks))
	for i, m := range marks {
		out[i] = replica.StateMark{Index: m.Index, Hash: m.Hash}
	}
	return out
}

// readToken returns the token in a file, "" when none is named or the file is gone: a
// node that has joined does not need its join token.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	if info.Size() > maxTokenFile {
		return "", fmt.Errorf("read token: %s is not a token", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// stamp is the frame that the leader puts in front of each entry.
func stamp(term uint64, at time.Time) []byte {
	frame, err := command.Encode(command.Clock{At: compute.InstantOf(at), Term: term})
	if err != nil {
		panic(err) // Two integers always encode.
	}
	return frame
}

// proposer returns the proposer of commands; the cluster may be opened later.
func (n *Node) proposer() proposer { return proposer{n} }

// self is this node as it describes itself.
func (n *Node) self() compute.Node {
	return compute.Node{
		ID: n.cluster.ID(), Name: n.cfg.Name, Role: n.role(), API: n.urls.api,
		RPC: n.cluster.RPCAddress(), Gossip: n.cluster.Gossip().Address(), Metrics: n.urls.metrics,
		Version: n.opts.Version, Format: n.opts.Format,
	}
}

// openExecutor takes over the attempts of this node that still live.
func (n *Node) openExecutor(ctx context.Context) error {
	workers := &worker.Server{
		Cluster: n.cluster, Machine: n.machine, Read: n.reader().Read, Blob: n.blobs.Get, Put: n.blobs.Put,
		Chunks: n.trees.Numbers, Variables: vault{n.master}.variables,
		Credentials: vault{n.master}.credentials, Storage: n.s3.access, Propose: n.proposer().Propose,
		Model: modelOf, CopyModel: orgModels{n}.copyTo, Archive: outputArchive{n}.keep,
	}
	workers.Handle()
	return n.openExecutorWith(ctx, worker.NewReplicaSource(n.machine, n.cluster),
		worker.ReplicaReporter{Node: n.cluster.ID(), Propose: n.proposer().Propose}, bundles{n.blobs}, n.blobs,
		executorSecrets{ownSecrets{n}.variables, ownSecrets{n}.credentials, n.s3.ownAccess})
}

// executorSecrets are the secrets that the executor asks for on behalf of the users
// of attempts.
type executorSecrets struct {
	variables   inputs.Variables
	credentials prepare.Credentials
	storage     func(context.Context, compute.Work) (*compute.StorageAccess, error)
}

func (n *Node) openExecutorWith(
	ctx context.Context, source executor.Source, report executor.Reporter, bundles inputs.Bundles,
	blobs inputs.Blobs, secret executorSecrets,
) (err error) {
	self := n.self()
	own, _ := nodeAddrs(ctx, net.DefaultResolver, []*compute.Node{&self}) // The others' come with the deny list.
	network := compute.NetworkEgress
	if n.cfg.Exec.Network == compute.NetworkNone.String() {
		network = compute.NetworkNone
	}
	if err := n.s3.openMounts(ctx); err != nil {
		return err
	}
	cfg := n.executorConfig()
	cfg.Node, cfg.Network, cfg.DenyCIDRs, cfg.Contact = n.cluster.ID(), network, own, n.cluster.ContactAt
	cfg.Blobs, cfg.Variables, cfg.Credentials = blobs, secret.variables, secret.credentials
	cfg.Storage.Access = secret.storage
	cfg.Models = n.models(secret.credentials)
	cfg.Meter = seriesMeter{n.usages, n, blobs.Put}
	n.executor, err = executor.Open(cfg, source, report, bundles) // Its attempts outlive ctx.
	if err != nil {
		return fmt.Errorf("open executor: %w", err)
	}
	servicePorts{n}.serve()
	n.loads.use(n.executor)
	n.onClose(n.executor.Close)
	n.devices.Poll(ctx) // The executor knows the Docker engine.
	attemptSeries{n}.open()
	return nil
}

// executorConfig returns the settings of the executor from the configuration.
func (n *Node) executorConfig() executor.Config {
	return executor.Config{
		Config:   n.prepareConfig(),
		Requests: servicePorts{n}.drain, DrainWait: n.cfg.Services.DrainWait,
		Printing: n.outputSender.Track,
		Retain:   executor.Retain{Age: n.cfg.Output.Age, Bytes: n.cfg.Output.SizeMiB << 20},
		Archive:  outputArchive{n}.keepOwn,
	}
}

// prepareConfig returns the settings of how attempts are prepared from the configuration.
func (n *Node) prepareConfig() prepare.Config {
	cfg := prepare.Config{
		DataDir: n.cfg.DataDir, Python: n.cfg.Python.Interpreter, SiteDirs: n.cfg.Python.SiteDirs,
		StopGrace: n.cfg.Exec.Grace, ScratchMiB: n.cfg.Exec.ScratchMiB, ScratchMemory: n.cfg.Exec.Scratch == "memory",
		Packages: prepare.Packages{
			Index: packages.Index{
				URL: n.cfg.Python.Index, FindLinks: n.cfg.Python.FindLinks,
				Hosts: n.cfg.Python.IndexHosts, Offline: n.cfg.Python.Offline,
			},
			SizeMiB: n.cfg.Python.InstallMiB, KeepMiB: n.cfg.Python.KeepMiB, Timeout: n.cfg.Python.InstallTimeout,
		},
		Containers: prepare.Containers{
			Host: n.cfg.Docker.Address(), Auto: n.cfg.Docker.Host == config.DockerAuto,
			Runtime: n.cfg.Docker.Runtime, Registries: n.cfg.Docker.Registries,
			ECR: n.cfg.Docker.ECR, Compose: n.cfg.Docker.Compose, KeepMiB: n.cfg.Docker.KeepMiB, ImageMiB: n.cfg.Docker.ImageMiB,
			PullLimit: n.cfg.Docker.PullTimeout,
		},
		Storage: prepare.Storage{Socket: n.s3.socket},
		Logger:  n.logger, Registerer: n.registry, Now: n.opts.Now,
	}
	for _, m := range n.cfg.Exec.Mounts {
		cfg.Mounts = append(cfg.Mounts, prepare.Mount{Name: m.Name, Path: m.Path, ReadOnly: m.RO, Always: m.Always})
	}
	return cfg
}

// openScheduler makes the loop that this node runs while it leads.
func (n *Node) openScheduler(context.Context) error {
	n.schedule = scheduler.New(scheduler.Config{
		Views: func() scheduler.View { return n.machine.View() },
		Changed: func(ctx context.Context, after uint64) error {
			_, err := n.machine.Wait(ctx, after+1)
			return err
		},
		Committer:  leader.NewCommitter(n.machine, n.proposer().Propose, n.registry),
		Logger:     n.logger,
		Registerer: n.registry,
		Now:        n.opts.Now,
	})
	return nil
}

// Purposes of the keys that are derived from the master key. A purpose is
// never used for anything else.
const (
	streamKeyPurpose  = "stream tokens v1"
	refreshKeyPurpose = "refresh tokens v1"
	derivedKeyBytes   = 32
)

// openAPI makes the server of the REST API.
func (n *Node) openAPI(context.Context) (err error) {
	members := members{n.cluster, n.machine}
	tlsConfig, scrapeToken, err := n.apiAccess()
	if err != nil {
		return err
	}
	var gatherer prometheus.Gatherer // None where metrics have a listener of their own.
	if n.metrics == nil {
		gatherer = n.registry
	}
	if err := n.s3.open(); err != nil {
		return err
	}
	payments, err := n.payments()
	if err != nil {
		return err
	}
	accounts, err := n.accounts()
	if err != nil {
		return err
	}
	n.routes = router.New(n.cluster.ID(), servicePorts{n}.dial, n.opts.Now)
	n.routes.SetQueues(n.modelQueues())
	n.onClose(n.routes.Close)
	n.openMeter()
	modelLoads{n}.serve()
	servicePorts{n}.serveDrains()
	history := explain.NewHistory(n.cluster.Replica, func() (*fsm.FSM, error) { return repair.NewMachine(n.cfg.DataDir) })
	n.api, err = api.New(handler.Config{
		Config:    n.edgeConfig(tlsConfig, scrapeToken),
		Logs:      outputs{n.output, n, new(sync.Pool)},
		Series:    attemptSeries{n},
		Blobs:     n.blobs,
		Trees:     n.trees,
		Objects:   storedObjects{n.objects},
		S3:        n.s3.credentials,
		Migrate:   n.remote.migrate,
		Accounts:  accounts,
		Payments:  payments,
		BundleMax: n.cfg.Limits.BundleMax,
		Vault:     vault{n.master},
		Master:    masterKey{n},
		Backoff: handler.Backoff{
			First: n.cfg.Services.BackoffFirst, Most: n.cfg.Services.BackoffMost, Reset: n.cfg.Services.BackoffReset,
		},
		Inference:    n.inference(),
		Judge:        selection.Judge,
		Explain:      explain.New().Explain,
		Chart:        chart.Selection,
		Replay:       history.Replay,
		WhatIf:       history.WhatIf,
		NewJoinToken: members.newJoinToken,
		Peers:        members.peers,
		Clocks:       members.clocks,
		CheckRemoval: members.checkRemoval,
		CheckCopies:  n.copies.Check,
		Transfer:     n.cluster.Transfer,
		Ready:        n.ready,
		Version:      n.opts.Version,
		Build:        n.opts.Build,
		Gatherer:     gatherer,
	})
	if err != nil {
		return fmt.Errorf("open api: %w", err)
	}
	worker.ServeRelay(n.cluster, n.api)
	servicePorts{n}.serveWorkers()
	return nil
}

// edgeConfig returns how requests come and go.
func (n *Node) edgeConfig(tlsConfig *tls.Config, scrapeToken string) edge.Config {
	return edge.Config{
		Proposer: n.proposer(),
		Reader:   n.reader(),
		Archives: n.archives,
		Services: n.routes, ServicesURL: n.cfg.Services.URL, S3: n.s3.transport(),
		Models: n.routes, Tokens: tokens{n.meter}, ModelLimits: n.modelLimits(),
		Unseal: func(key compute.SigningKey) (ed25519.PrivateKey, error) {
			return leader.OpenSigningKey(n.master, key)
		},
		StreamKey:    n.master.Derive(streamKeyPurpose, derivedKeyBytes),
		RefreshKey:   n.master.Derive(refreshKeyPurpose, derivedKeyBytes),
		PublicURL:    n.cfg.API.PublicURL,
		TLS:          tlsConfig,
		Front:        n.front(),
		Limits:       n.limits(),
		MetricsToken: scrapeToken,
		MetricsLocal: !n.cfg.API.Insecure,
		Crowded:      n.pace.hurry,
		Now:          n.cluster.Clock().Now,
		Logger:       n.logger,
		Registerer:   n.registry,
	}
}

// front returns how browsers and names reach the API.
func (n *Node) front() edge.Front {
	return edge.Front{Hosts: n.cfg.API.Hosts, Origins: n.cfg.API.Origins, AccessLog: n.cfg.API.AccessLog}
}

// limits returns the limits of the API's clients.
func (n *Node) limits() edge.Limits {
	l := &n.cfg.Limits
	return edge.Limits{StaleAuthMax: l.StaleAuthMax, Rate: l.KeyRate, OrgRate: l.OrgRate, AnonRate: l.AddressRate}
}

// apiAccess returns the API's TLS configuration and the token for /metrics.
func (n *Node) apiAccess() (*tls.Config, string, error) {
	tlsConfig, err := n.apiTLS()
	if err != nil {
		return nil, "", err
	}
	token, err := metricsToken(n.cfg.Metrics.TokenFile)
	return tlsConfig, token, err
}
