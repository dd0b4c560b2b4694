package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/hashicorp/memberlist"

	"berth/cluster/file"
	"berth/compute"
)

// Limits of the gossip keyring.
const (
	keyLength = 32 // AES-256 only, although memberlist takes shorter ones.
	maxKeys   = 8
)

// keyringJSON is the form of the keyring on disk and on its way to a server
// that joins.
type keyringJSON struct {
	Keys [][]byte `json:"keys"` // The first one encrypts.

	Sum string `json:"crc32c,omitempty"` // On disk: of the text, see file.WriteSealed.
}

// parseKeyring reads a keyring, whose keys must be for AES-256.
func parseKeyring(text []byte) ([][]byte, error) {
	var ring keyringJSON
	if err := json.Unmarshal(text, &ring); err != nil {
		return nil, fmt.Errorf("read gossip keyring: %w", err)
	}
	if len(ring.Keys) == 0 || len(ring.Keys) > maxKeys {
		return nil, fmt.Errorf("read gossip keyring: %d keys", len(ring.Keys))
	}
	for _, key := range ring.Keys {
		if len(key) != keyLength {
			return nil, fmt.Errorf("read gossip keyring: a key of %d bytes", len(key))
		}
	}
	return ring.Keys, nil
}

func (g *gossip) keyringPath() string { return g.c.dir.KeyringPath() }

// makeKeyring makes the keyring of a new cluster.
func (g *gossip) makeKeyring() error {
	key := make([]byte, keyLength)
	if _, err := io.ReadFull(g.c.cfg.Rand, key); err != nil {
		return fmt.Errorf("make gossip key: %w", err)
	}
	return g.saveKeyring([][]byte{key})
}

// importKeyring takes over the keyring that the cluster handed out.
func (g *gossip) importKeyring(text []byte) error {
	keys, err := parseKeyring(text)
	if err != nil {
		return err
	}
	return g.saveKeyring(keys)
}

// exportKeyring returns the keyring for a node that joins.
func (g *gossip) exportKeyring() ([]byte, error) {
	text, err := json.Marshal(keyringJSON{Keys: g.keys.GetKeys()})
	if err != nil {
		return nil, fmt.Errorf("export gossip keyring: %w", err)
	}
	return text, nil
}

func (g *gossip) saveKeyring(keys [][]byte) error {
	text, err := json.MarshalIndent(keyringJSON{keys, file.Unsealed}, "", "\t")
	if err != nil {
		return fmt.Errorf("save gossip keyring: %w", err)
	}
	if err := file.WriteSealed(g.keyringPath(), append(text, '\n')); err != nil {
		return fmt.Errorf("save gossip keyring: %w", err)
	}
	return nil
}

func (g *gossip) loadKeyring() error {
	text, err := file.ReadSealed(g.keyringPath())
	if err != nil {
		return fmt.Errorf("load gossip keyring, which is the same on every node and can be copied from another: %w", err)
	}
	keys, err := parseKeyring(text)
	if err != nil {
		return err
	}
	if g.keys, err = memberlist.NewKeyring(keys, keys[0]); err != nil {
		return fmt.Errorf("load gossip keyring: %w", err)
	}
	return nil
}

// AddGossipKey makes this node accept what is encrypted with key. A rotation
// adds the new key on every node, then uses it on every node, then, two full
// exchanges later, removes the old one on every node.
func (c *Cluster) AddGossipKey(key []byte) error {
	if len(key) != keyLength {
		return compute.Errorf(compute.CodeInvalid, "A gossip key has %d bytes.", keyLength)
	}
	keys := c.gossip.keys.GetKeys()
	if len(keys) >= maxKeys {
		return compute.Errorf(compute.CodeConflict, "The gossip keyring has %d keys: remove one first.", len(keys))
	}
	return c.changeKeys(c.gossip.keys.AddKey(bytes.Clone(key)))
}

// UseGossipKey makes this node encrypt with key, which must have been added.
func (c *Cluster) UseGossipKey(key []byte) error {
	return c.changeKeys(c.gossip.keys.UseKey(key))
}

// RemoveGossipKey makes this node refuse what is encrypted with key, which
// must not be the one in use.
func (c *Cluster) RemoveGossipKey(key []byte) error {
	return c.changeKeys(c.gossip.keys.RemoveKey(key))
}

// GossipKeys returns the keys of this node, the one in use first, so that
// each step of a rotation can be checked.
func (c *Cluster) GossipKeys() [][]byte { return c.gossip.keys.GetKeys() }

// changeKeys saves the keyring after a change that memberlist accepted.
func (c *Cluster) changeKeys(err error) error {
	if err != nil {
		return compute.Errorf(compute.CodeConflict, "The gossip key cannot be changed so: %w", err)
	}
	return c.gossip.saveKeyring(c.gossip.keys.GetKeys())
}
