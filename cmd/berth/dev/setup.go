package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/loop"
)

// tokenTTL is how long the other nodes may take to join.
const tokenTTL = 30 * time.Minute

// Times of starts: the first nodes at once, then one after the other.
const (
	atOnce      = 8
	launchPause = 400 * time.Millisecond
	trustPause  = 100 * time.Millisecond // Between tries to trust the developer's organization,
	trustLimit  = 30 * time.Second       // and for all of them.
)

// keyName is the name of the API key that cluster.json holds.
const keyName = "berth dev"

// comeUp starts the nodes and returns once all are ready and cluster.json is
// written.
func (c *Cluster) comeUp(ctx context.Context) error {
	if c.plan.Joined {
		if _, err := c.plan.adoptRootToken(); err != nil {
			return err
		}
	}
	if err := c.startNodes(ctx); err != nil {
		return err
	}
	admin, err := c.client(c.plan.RootToken)
	if err != nil {
		return err
	}
	err = c.await(ctx, func(ctx context.Context) (string, error) { return c.unreadyNode(ctx, admin) })
	if err != nil {
		return err
	}
	if c.plan.APIKey == "" {
		if err := c.makeUser(ctx, admin); err != nil {
			return err
		}
	}
	c.plan.Joined = true
	if err := c.plan.save(); err != nil {
		return err
	}
	c.survey(ctx, admin)
	if len(c.written.Nodes) == 0 {
		return errors.New("the cluster lost its leader while it came up")
	}
	close(c.ready)
	return nil
}

// startNodes starts every node that was not removed. At the first start the
// first node bootstraps the cluster and creates the token with which the others
// join. A node without data joins later in the same way.
func (c *Cluster) startNodes(ctx context.Context) error {
	host := c.plan.host()
	var later []plannedNode
	for _, n := range c.plan.members() {
		if n.Name != host.Name && !c.plan.hasData(n) {
			later = append(later, n)
			continue
		}
		c.launch(ctx, n)
	}
	if c.plan.Joined && len(later) == 0 {
		return nil
	}
	first, err := client.New(client.Config{Addrs: []string{"http://" + host.API}, RetryFor: -1})
	if err != nil {
		return err
	}
	err = c.await(ctx, func(ctx context.Context) (string, error) { return host.Name, first.Ready(ctx) })
	if err != nil {
		return err
	}
	if !c.plan.Joined {
		if err := c.plan.readBootstrap(); err != nil {
			return err
		}
	}
	if err := c.makeTokens(ctx, first.WithToken(c.plan.RootToken)); err != nil {
		return cmp.Or(c.rotated(err), err)
	}
	for i, n := range later {
		// More concurrent starts would take the processors from running nodes.
		if i >= atOnce && !loop.Sleep(ctx, launchPause) {
			return ctx.Err()
		}
		c.launch(ctx, n)
	}
	return nil
}

// makeTokens creates a join token for each role. The berth.yaml of every node
// but the first names one of their files.
func (c *Cluster) makeTokens(ctx context.Context, admin *client.Client) error {
	workers := c.plan.workers()
	for _, t := range []struct {
		role compute.Role
		uses int
		file string
	}{
		{compute.RoleServer, len(c.plan.Nodes) - workers - 1, tokenFile},
		{compute.RoleWorker, workers, workerFile},
	} {
		if t.uses == 0 {
			continue
		}
		token, err := admin.CreateJoinToken(ctx, wire.NewJoinToken{
			Role: t.role.String(), TTL: int(tokenTTL.Seconds()), Uses: t.uses,
		})
		if err != nil {
			return fmt.Errorf("make join token: %w", err)
		}
		if err := writeFile(c.plan.path(t.file), []byte(token.Token+"\n")); err != nil {
			return err
		}
	}
	return nil
}

// makeUser creates the user and the API key that cluster.json names. It
// continues after an interrupted start.
func (c *Cluster) makeUser(ctx context.Context, admin *client.Client) error {
	_, err := admin.CreateUser(ctx, wire.NewUser{
		Email: c.plan.Email, Password: c.plan.Password,
		FullName: "Developer", OrgName: "Development", OrgSlug: c.plan.OrgSlug,
	})
	if e, ok := errors.AsType[*client.Error](err); err != nil && (!ok || e.Status != http.StatusConflict) {
		return fmt.Errorf("make user: %w", err)
	}
	if err := c.trust(ctx, admin); err != nil {
		return err
	}
	session, err := admin.WithToken("").Login(ctx, c.plan.Email, c.plan.Password)
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	key, err := admin.WithToken(session.AccessToken).CreateKey(ctx, c.plan.OrgSlug, keyName)
	if err != nil {
		return fmt.Errorf("make API key: %w", err)
	}
	c.plan.APIKey = key.PlaintextKey
	return c.plan.save()
}

// trust lets the developer's organization execute containers on this machine, whatever
// its engine: it is the developer's own. A new cluster allows that after a moment, once
// its servers know of each other what they can do.
func (c *Cluster) trust(ctx context.Context, admin *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, trustLimit)
	defer cancel()
	for {
		_, err := admin.TrustOrg(ctx, c.plan.OrgSlug, true)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusConflict {
			if err != nil {
				return fmt.Errorf("trust organization: %w", err)
			}
			return nil
		}
		if !loop.Sleep(ctx, trustPause) {
			return fmt.Errorf("trust organization: %w", err)
		}
	}
}

// unreadyNode returns a node that is not ready, and the reason.
func (c *Cluster) unreadyNode(ctx context.Context, admin *client.Client) (string, error) {
	if err := c.dropRemoved(); err != nil {
		return c.plan.Nodes[0].Name, err
	}
	members := c.plan.members()
	if len(members) == 0 {
		return c.plan.Nodes[0].Name, errors.New("every node was removed")
	}
	for _, n := range members {
		one, err := client.New(client.Config{Addrs: []string{"http://" + n.API}, RetryFor: -1})
		if err == nil {
			err = one.Ready(ctx)
		}
		if err != nil {
			return n.Name, err
		}
	}
	cluster, err := query(ctx, admin)
	if err != nil {
		return members[0].Name, err
	}
	for _, n := range members {
		if missing := cluster.missing(n); missing != "" {
			return n.Name, errors.New(missing)
		}
	}
	if cluster.leader.IsZero() {
		return members[0].Name, errors.New("no node leads")
	}
	servers := slices.DeleteFunc(slices.Clone(members), func(n plannedNode) bool { return n.Worker })
	if want := min(voters, len(servers)); cluster.voters < want {
		return members[0].Name, fmt.Errorf("%d nodes vote, not yet %d", cluster.voters, want)
	}
	return "", nil
}

// forEach returns n times d.
func forEach(n int, d time.Duration) time.Duration { return time.Duration(int64(n) * int64(d)) }

// await calls check until it returns no error. check returns a node that is not
// ready, and the reason.
func (c *Cluster) await(ctx context.Context, check func(context.Context) (string, error)) error {
	count := len(c.plan.Nodes)
	limit, once := readyLimit+forEach(count, readyMore), surveyLimit+forEach(count, surveyMore)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var node, gaveUp string
	var rotated, err error
	done := poll(limited, func() bool {
		looking, cancel := context.WithTimeout(limited, once)
		defer cancel()
		if node, err = check(looking); err == nil {
			return true
		}
		var found bool
		gaveUp, found = c.givenUp()
		rotated = c.rotated(err)
		return found || rotated != nil
	})
	switch {
	case rotated != nil:
		return rotated
	case gaveUp != "":
		return c.unready(gaveUp, "ends as soon as it starts")
	case done:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return c.unready(node, fmt.Sprintf("is not ready after %s (%v)", limit, err))
}

// rotated returns what to do if an error says that the root token of a cluster was rotated, else nil.
func (c *Cluster) rotated(err error) error {
	if !c.plan.Joined || client.CodeOf(err) != "unauthenticated" {
		return nil
	}
	return fmt.Errorf("the cluster refuses the root token that it had: write the one that replaced it to %s",
		c.plan.path(rootFile))
}

// survey rewrites cluster.json if the cluster differs from it, and reports whether it did or
// could not find out. While the cluster does not answer, it updates the processes only.
func (c *Cluster) survey(ctx context.Context, admin *client.Client) (changed bool) {
	if err := c.dropRemoved(); err != nil {
		c.cfg.Logger.Error("dev.json not written", "err", err)
	}
	members := c.plan.members()
	for _, n := range members {
		if err := trimLog(c.plan.path(n.Name, logFile)); err != nil {
			c.cfg.Logger.Warn("log not trimmed", "node", n.Name, "err", err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, surveyLimit)
	defer cancel()
	state, known := c.written, false
	if cluster, err := query(limited, admin); err == nil {
		var fresh State
		if fresh, known = cluster.state(c.plan); known {
			state = fresh
		}
	}
	if len(state.Nodes) != len(members) {
		return true // A node was removed meanwhile; the next survey describes the others.
	}
	state.Nodes = slices.Clone(state.Nodes)
	for i := range state.Nodes {
		state.Nodes[i].PID = c.pid(members[i].Name)
	}
	if reflect.DeepEqual(state, c.written) || len(state.Nodes) == 0 {
		return !known
	}
	if err := writeJSON(c.plan.path(stateFile), state); err != nil {
		c.cfg.Logger.Error("cluster.json not written", "err", err)
		return true
	}
	c.written = state
	return true
}
