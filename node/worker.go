package node

import (
	"context"
	"fmt"
	"net"
	"slices"

	"berth/api"
	"berth/api/edge"
	"berth/api/handler"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/node/logs"
	"berth/node/progress"
	"berth/node/worker"
)

// isWorker reports whether this node holds no replica.
func (n *Node) isWorker() bool { return n.cfg.Role == compute.RoleWorker.String() }

// role returns the role of this node.
func (n *Node) role() compute.Role {
	if n.isWorker() {
		return compute.RoleWorker
	}
	return compute.RoleServer
}

// workerNode is a Node of role worker: it has no replica, and asks the servers.
type workerNode struct{ *Node }

// openOutput reads what executions print here, for servers.
func (n workerNode) openOutput(context.Context) error {
	n.openLogs()
	outputCopying{n.Node}.open(cluster.Servers)
	follower := func(want uint64) *logs.Follower {
		return logs.NewFollower(logs.FollowerConfig{
			Node: n.cluster.ID(), Store: n.logs,
			State:  worker.Output{Self: n.cluster.ID(), Store: n.logs, Own: n.own, Want: want},
			Copies: n.outputCopies,
		})
	}
	n.progress = &progress.Service{Cluster: n.cluster, Reader: progress.NewReader(follower(0).Read, n.opts.Now)}
	n.cluster.Handle(methodDeleteLogs, cluster.Servers, n.deleteOutput)
	n.progress.Handle()
	n.cluster.HandleStream(methodLogs, cluster.Servers,
		func(ctx context.Context, _ rpc.Peer, req []byte, stream *rpc.Stream) error {
			want, req, err := splitAsked(req)
			if err != nil {
				return err
			}
			if err := stream.Accept(nil); err != nil {
				return err
			}
			window := logs.NewWindow()
			return follower(want).Serve(stream.UntilClosed(ctx, window.Received), req, stream, window)
		})
	return nil
}

// openExecutor takes over the attempts of this worker that still live.
func (n workerNode) openExecutor(ctx context.Context) error {
	up := worker.Variables{Up: n.cluster}
	return n.openExecutorWith(ctx, n.own, worker.Reporter{Up: n.cluster}, worker.Bundles{Up: n.cluster},
		worker.Blobs{Up: n.cluster}, executorSecrets{up.Variables, up.Credentials, up.Storage})
}

// announce has the servers keep this worker's own record right.
func (n workerNode) announce(ctx context.Context) error {
	worker.Announce(ctx, n.cluster, n.self(), n.logger)
	return nil
}

// neighbours returns the nodes that this worker knows of, for the egress deny list.
func (n workerNode) neighbours() []*compute.Node {
	var nodes []*compute.Node
	for _, m := range n.cluster.Gossip().Members() {
		nodes = append(nodes, &compute.Node{RPC: m.RPC, Gossip: m.Gossip})
	}
	for _, s := range n.cluster.Servers() {
		nodes = append(nodes, &compute.Node{RPC: s.Address})
	}
	self := n.self()
	return slices.DeleteFunc(append(nodes, &self), func(n *compute.Node) bool {
		_, _, err := net.SplitHostPort(n.RPC)
		return err != nil
	})
}

// openAPI makes the server of the REST API of a worker, which hands on
// what it is asked.
func (n workerNode) openAPI(context.Context) error {
	tlsConfig, scrapeToken, err := n.apiAccess()
	if err != nil {
		return err
	}
	cfg := handler.Config{
		Config: edge.Config{
			Relay:        worker.NewRelay(n.cluster, n.own),
			ServiceRelay: servicePorts{n.Node}.relay(), S3: n.s3.transport(),
			PublicURL:    n.cfg.API.PublicURL,
			TLS:          tlsConfig,
			Front:        n.front(),
			Limits:       n.limits(),
			MetricsToken: scrapeToken,
			MetricsLocal: !n.cfg.API.Insecure,
			Crowded:      n.pace.hurry,
			Now:          n.opts.Now,
			Logger:       n.logger,
			Registerer:   n.registry,
		},
		Ready:   n.own.Ready,
		Version: n.opts.Version,
		Build:   n.opts.Build,
	}
	if n.metrics == nil {
		cfg.Gatherer = n.registry
	}
	if n.api, err = api.New(cfg); err != nil {
		return fmt.Errorf("open api: %w", err)
	}
	return nil
}
