package node

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"

	"berth/api/execution"
	"berth/node/callback"
)

// openCallbacks makes what sends callbacks while this node leads.
func (n *Node) openCallbacks(context.Context) error {
	cfg := callback.Config{
		View: n.machine.View, Changed: n.machine.Changed, Propose: n.proposer().Propose,
		Body: execution.CallbackBody, Secret: vault{n.master}.secret, Signing: vault{n.master}.signing,
		Wait: func(ctx context.Context, index uint64) error {
			_, err := n.machine.Wait(ctx, index)
			return err
		},
		Now: n.cluster.Clock().Now, Agent: "berth/" + n.opts.Version,
		Logger: n.logger.With("part", "callbacks"), Registerer: n.registry,
	}
	for _, text := range n.cfg.Callbacks.Allow {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("callbacks.allow: %w", err)
		}
		cfg.Allow = append(cfg.Allow, prefix)
	}
	if path := n.cfg.Callbacks.CAFile; path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("callbacks.ca_file: %w", err)
		}
		if cfg.CAs, err = x509.SystemCertPool(); err != nil {
			cfg.CAs = x509.NewCertPool()
		}
		if !cfg.CAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("callbacks.ca_file: %s has no certificate", path)
		}
	}
	n.callbacks = callback.New(cfg)
	return nil
}

// sendCallbacks sends callbacks while this node leads.
func (n *Node) sendCallbacks(ctx context.Context) error {
	err := n.cluster.WhileLeader(ctx, n.callbacks.Lead)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
}
