package leader

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"berth/cluster/file"
	"berth/compute"
	"berth/fsm/command"
	"berth/node/secrets"
)

// RootTokenFile holds the cluster's root token, on the node that made it.
const RootTokenFile = "root_token"

// bootstrap returns the first command of a new cluster. The root token is on disk
// before anyone can learn its hash.
func (l *Leader) bootstrap() (command.Bootstrap, error) {
	token, err := rootToken(l.DataDir)
	if err != nil {
		return command.Bootstrap{}, err
	}
	key, err := newSigningKey(l.Secrets, l.Now())
	if err != nil {
		return command.Bootstrap{}, err
	}
	prices, own := compute.BuiltInPrices(), slices.Sorted(maps.Keys(l.Prices))
	maps.Copy(prices, l.Prices)
	return command.Bootstrap{
		ClusterID: l.Cluster.ClusterID(),
		RootToken: sha256.Sum256([]byte(token)),
		Settings:  l.Settings,
		Prices:    prices,
		Own:       own,
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
	seed, err := master.Unseal(key.Sealed, key.Context())
	if err != nil {
		return nil, fmt.Errorf("open signing key: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}
