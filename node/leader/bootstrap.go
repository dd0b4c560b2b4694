package leader

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"berth/cluster/file"
	"berth/compute"
	"berth/fsm"
	"berth/node/secrets"
)

// RootTokenFile holds the cluster's root token, on the node that made it.
const RootTokenFile = "root_token"

// defaultPrices returns micro-credits per second by GPU type, until the operator
// sets others. As in real clouds, an older card costs less for the same work: of
// the simulated types a t4 does it for 0.63 times what an h100 takes.
func defaultPrices() map[string]compute.Price {
	return map[string]compute.Price{
		"cpu": 15, "t4": 60, "l4": 110, "a10": 150, "l40s": 280,
		"a100": 420, "h100": 800, "h200": 1000, "b200": 1600,
	}
}

// bootstrap returns the first command of a new cluster. The root token is on disk
// before anyone can learn its hash.
func (l *Leader) bootstrap() (fsm.Bootstrap, error) {
	token, err := rootToken(l.DataDir)
	if err != nil {
		return fsm.Bootstrap{}, err
	}
	key, err := newSigningKey(l.Secrets, l.Now())
	if err != nil {
		return fsm.Bootstrap{}, err
	}
	return fsm.Bootstrap{
		ClusterID: l.Cluster.ClusterID(),
		RootToken: sha256.Sum256([]byte(token)),
		Settings:  l.Settings,
		Prices:    defaultPrices(),
		Signing:   key,
	}, nil
}

// rootToken returns the root token of the data directory, made at the first
// call.
func rootToken(dir string) (string, error) {
	path := filepath.Join(dir, RootTokenFile)
	if data, err := os.ReadFile(path); err == nil {
		return string(data), nil
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("make root token: %w", err)
	}
	token := "brt_" + base64.RawURLEncoding.EncodeToString(secret)
	if err := file.Write(path, []byte(token)); err != nil {
		return "", fmt.Errorf("write root token: %w", err)
	}
	return token, nil
}

// newSigningKey makes a key for access tokens, its private half sealed.
func newSigningKey(master *secrets.Master, now time.Time) (compute.SigningKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return compute.SigningKey{}, fmt.Errorf("make signing key: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return compute.SigningKey{}, fmt.Errorf("make signing key: %w", err)
	}
	sealed, err := master.Seal(private.Seed(), []byte("signing key "+id.String()))
	if err != nil {
		return compute.SigningKey{}, fmt.Errorf("seal signing key: %w", err)
	}
	return compute.SigningKey{ID: id.String(), Public: public, Sealed: sealed, CreatedAt: compute.InstantOf(now)}, nil
}

// OpenSigningKey returns the private half of a signing key.
func OpenSigningKey(master *secrets.Master, key compute.SigningKey) (ed25519.PrivateKey, error) {
	seed, err := master.Unseal(key.Sealed, []byte("signing key "+key.ID))
	if err != nil {
		return nil, fmt.Errorf("open signing key: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}
