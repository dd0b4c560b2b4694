package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth/api/wire"
	"berth/bench/quantile"
	"berth/compute"
)

// The measurement of turns.
const (
	turnsID     = "bench/turns"
	turnsAlone  = 60 // Streams of the small organization, one after the other.
	turnsFilled = 2 * time.Second
)

// Turns is how long streams of one organization take while another one has many under way
// at the same node.
type Turns struct {
	Crowd   int     `json:"crowd"`
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
	out = Turns{Crowd: m.cfg.Crowd, Places: m.cfg.Places}
	if out.AloneMS, err = asks(); err != nil {
		return out, fmt.Errorf("ask alone: %w", err)
	}
	crowded, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for i := range m.cfg.Crowd {
		group.Go(func() {
			for n := i; crowded.Err() == nil; n++ {
				// Equal ones would end together, as no real ones do. It ends with crowded.
				_, _ = m.streamOf(crowded, many, streamSteps/2+n%(streamSteps+1))
			}
		})
	}
	settled := time.NewTimer(turnsFilled)
	defer settled.Stop()
	select {
	case <-settled.C:
	case <-ctx.Done():
		return out, ctx.Err()
	}
	if out.WithMS, err = asks(); err != nil {
		return out, fmt.Errorf("ask beside a crowd: %w", err)
	}
	out.Ratio = out.WithMS / out.AloneMS
	stop()
	group.Wait()
	if _, err := operator.RemoveModel(ctx, turnsID); err != nil {
		return out, err
	}
	return out, m.remove(ctx, id)
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
