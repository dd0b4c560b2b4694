package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth/api/wire"
	"berth/bench/quantile"
	"berth/compute"
	"berth/loop"
)

// The measurement of turns.
const (
	turnsID    = "bench/turns"
	turnsAlone = 60 // Streams of the small organization, one after the other.
	crowdWait  = time.Minute
	crowdPause = 100 * time.Millisecond
	crowdPart  = 0.9 // The part of the crowd that is under way at the end, at least: some requests have just ended.
)

// Turns is how long streams of one organization take while another one has many under way
// at the same node.
type Turns struct {
	Crowd   int     `json:"crowd"`  // Counted by the node: the fewer of those before and after the streams.
	Places  int     `json:"places"` // Places of the replica.
	AloneMS float64 `json:"alone_p95_ms"`
	WithMS  float64 `json:"beside_crowd_p95_ms"`
	Ratio   float64 `json:"ratio"`
}

// turns publishes a model with few places and asks it as two organizations.
func (m *inferring) turns(ctx context.Context) (out Turns, err error) {
	id, _, other, err := m.deploy(ctx, turnsModel, m.cfg.NarrowEngine, 1)
	if err != nil {
		return out, err
	}
	operator, err := m.client(m.RootToken)
	if err != nil {
		return out, err
	}
	priced := wire.NewModel{Deployment: id, Prompt: compute.Credit, Completion: compute.Credit}
	if _, err := operator.SetModel(ctx, turnsID, priced); err != nil {
		return out, fmt.Errorf("publish: %w", err)
	}
	small, err := m.account(ctx, "turns")
	if err != nil {
		return out, err
	}
	few := target{other.URL + "/openai/v1", turnsID, small}
	many := target{few.base, turnsID, m.APIKey}
	asks := func() (float64, error) {
		took, err := times(ctx, 1, upTo(turnsAlone), func(ctx context.Context) error {
			_, err := m.stream(ctx, few)
			return err
		})
		return quantile.Milliseconds(took, 0.95), err
	}
	out.Places = m.cfg.Places
	if out.AloneMS, err = asks(); err != nil {
		return out, fmt.Errorf("ask alone: %w", err)
	}
	crowd := m.gather(ctx, many)
	defer crowd.leave()
	if out.Crowd, err = m.awaitCrowd(ctx, crowd, other); err != nil {
		return out, err
	}
	if out.WithMS, err = asks(); err != nil {
		return out, fmt.Errorf("ask beside a crowd: %w", err)
	}
	left, err := m.underWay(ctx, other, turnsID)
	if err = errors.Join(err, crowd.failure()); err != nil {
		return out, err
	}
	if left < int(crowdPart*float64(m.cfg.Crowd)) {
		return out, fmt.Errorf("only %d of the crowd's %d requests are under way at the end", left, m.cfg.Crowd)
	}
	out.Crowd, out.Ratio = min(out.Crowd, left), out.WithMS/out.AloneMS
	crowd.leave()
	if _, err := operator.RemoveModel(ctx, turnsID); err != nil {
		return out, err
	}
	return out, m.remove(ctx, id)
}

// crowd is one organization that has many requests under way.
type crowd struct {
	stop  context.CancelFunc
	group sync.WaitGroup

	mu sync.Mutex

	failed error // That of the first request that failed.
}

// gather begins the requests of a crowd. Each one that ends is followed by another one, until
// the crowd leaves.
func (m *inferring) gather(ctx context.Context, at target) *crowd {
	c := &crowd{}
	ctx, c.stop = context.WithCancel(ctx)
	for i := range m.cfg.Crowd {
		c.group.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				// Equal ones would end together, as no real ones do.
				_, err := m.streamOf(ctx, at, streamSteps/2+n%(streamSteps+1))
				if err != nil && ctx.Err() == nil {
					c.fail(err)
					return
				}
			}
		})
	}
	return c
}

// leave ends the requests of the crowd.
func (c *crowd) leave() {
	c.stop()
	c.group.Wait()
}

// fail notes that a request failed.
func (c *crowd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = fmt.Errorf("a request of the crowd failed: %w", err)
	}
}

// failure returns the error of a request that failed, nil for none.
func (c *crowd) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// awaitCrowd waits until all requests of a crowd are under way at a node, as that counts them,
// and returns how many there are.
func (m *inferring) awaitCrowd(ctx context.Context, c *crowd, at *Node) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, crowdWait)
	defer cancel()
	for n = 0; ctx.Err() == nil; loop.Sleep(ctx, crowdPause) {
		now, err := m.underWay(ctx, at, turnsID)
		if err == nil { // A busy node refuses.
			n = now
		}
		if failed := c.failure(); failed != nil {
			return n, failed
		}
		if n >= m.cfg.Crowd {
			return n, nil
		}
	}
	return n, fmt.Errorf("only %d of the crowd's %d requests are under way at %s", n, m.cfg.Crowd, at.Name)
}

// underWay returns how many requests to a model a node has under way, by its metrics.
func (m *inferring) underWay(ctx context.Context, at *Node, model string) (int, error) {
	series := fmt.Sprintf("berth_inference_requests_running{model=%q}", model)
	n, err := metricOf(ctx, at.URL, m.RootToken, series)
	if err != nil {
		return 0, fmt.Errorf("count requests under way: %w", err)
	}
	return int(n), nil
}

// account returns an API key of a new organization.
func (m *inferring) account(ctx context.Context, slug string) (key string, err error) {
	operator, err := m.client(m.RootToken)
	if err != nil {
		return "", err
	}
	user := wire.NewUser{Email: slug + "@example.com", Password: "a password of " + slug, OrgSlug: slug, OrgName: slug}
	if _, err := operator.CreateUser(ctx, user); err != nil {
		return "", fmt.Errorf("create user: %w", err)
	}
	session, err := operator.WithToken("").Login(ctx, user.Email, user.Password)
	if err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	minted, err := operator.WithToken(session.AccessToken).CreateKey(ctx, slug, "bench")
	if err != nil {
		return "", fmt.Errorf("create key: %w", err)
	}
	return minted.PlaintextKey, nil
}
