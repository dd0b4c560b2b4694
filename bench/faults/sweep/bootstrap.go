package sweep

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/fault"
)

// singleNode is a node that bootstraps a separate cluster on this machine.
type singleNode struct {
	dir    string
	binary string
	addr   string // The address of its API.
}

// bootstrapping kills a node while it bootstraps a cluster, and starts it
// again. The node must complete the bootstrap, once.
func bootstrapping(ctx context.Context, s *sweep, t Trial) (at string, err error) {
	l := &singleNode{dir: filepath.Join(s.cfg.Dir, "found-"+t.Point), binary: s.cfg.Binary}
	if err := l.prepare(ctx); err != nil {
		return "", err
	}
	first := l.command(ctx, "BERTH_FAULTS="+t.Point+"="+t.Action)
	err = first.Run()
	if first.ProcessState == nil || first.ProcessState.ExitCode() != fault.ExitCode {
		return "", fmt.Errorf("bootstrap cluster: the node did not exit at the point: %w", errors.Join(ctx.Err(), err))
	}
	again := l.command(ctx)
	if err := again.Start(); err != nil {
		return "", err
	}
	err = l.use(ctx)
	err = errors.Join(err, again.Process.Signal(syscall.SIGTERM), again.Wait())
	return "n0", err
}

// prepare creates the node's directory and picks a free port.
func (l *singleNode) prepare(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.addr = listener.Addr().String()
	if err := errors.Join(listener.Close(), os.MkdirAll(l.dir, 0o700)); err != nil {
		return err
	}
	config := fmt.Sprintf("name: n0\ndata_dir: %q\napi:\n  addr: %s\n"+
		"rpc:\n  addr: 127.0.0.1:0\ngossip:\n  addr: 127.0.0.1:0\ns3:\n  addr: off\n"+
		"executor:\n  network: none\nbilling:\n  signup_grant: 1\ngpus:\n  source: none\n",
		filepath.Join(l.dir, "data"), l.addr)
	return os.WriteFile(filepath.Join(l.dir, "berth.yaml"), []byte(config), 0o600)
}

// command returns the node's process, which ends with ctx.
func (l *singleNode) command(ctx context.Context, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.binary, "node", "--config", filepath.Join(l.dir, "berth.yaml"))
	cmd.Env = append(os.Environ(), env...)
	log, err := os.OpenFile(filepath.Join(l.dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		cmd.Stdout, cmd.Stderr = log, log // This process closes it at its end. It is for humans.
	}
	return cmd
}

// use submits work to the cluster.
func (l *singleNode) use(ctx context.Context) error {
	var token []byte
	for len(token) == 0 && ctx.Err() == nil {
		token, _ = os.ReadFile(filepath.Join(l.dir, "data", "root_token"))
		<-time.After(pollEvery)
	}
	admin, err := client.New(client.Config{
		Addrs: []string{"http://" + l.addr}, Token: strings.TrimSpace(string(token)), RetryFor: time.Minute,
	})
	if err != nil {
		return err
	}
	user := wire.NewUser{Email: "a@example.com", Password: "correct horse battery", OrgSlug: benchSlug, OrgName: benchSlug}
	if _, err := admin.CreateUser(ctx, user); err != nil {
		return fmt.Errorf("create user: %w", err)
	}
	session, err := admin.WithToken("").Login(ctx, user.Email, user.Password)
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	key, err := admin.WithToken(session.AccessToken).CreateKey(ctx, benchSlug, benchSlug)
	if err != nil {
		return fmt.Errorf("create key: %w", err)
	}
	caller := admin.WithToken(key.PlaintextKey)
	started, err := caller.Submit(ctx, client.Start{Code: "pass", Timeout: 60, Network: compute.NetworkNone.String()})
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	e, err := caller.Finished(ctx, started.ExecutionID)
	if err == nil && e.Status != compute.StatusCompleted {
		err = fmt.Errorf("the execution ended as %s", e.Status)
	}
	return err
}
