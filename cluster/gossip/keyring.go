package gossip

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/hashicorp/memberlist"

	"berth/cluster/datadir"
	"berth/cluster/file"
)

// Limits of the gossip keyring.
const (
	keyLength = 32 // AES-256 only, although memberlist accepts shorter ones.
	maxKeys   = 8
)

// keyringJSON is the keyring on disk and on its way to a joining node.
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

// MakeKeyring makes the keyring of a new cluster.
func MakeKeyring(dir *datadir.Dir, random io.Reader) error {
	key := make([]byte, keyLength)
	if _, err := io.ReadFull(random, key); err != nil {
		return fmt.Errorf("make gossip key: %w", err)
	}
	return saveKeyring(dir, [][]byte{key})
}

// ImportKeyring saves the keyring that a node received when it joined.
func ImportKeyring(dir *datadir.Dir, text []byte) error {
	keys, err := parseKeyring(text)
	if err != nil {
		return err
	}
	return saveKeyring(dir, keys)
}

// ExportKeyring returns the keyring for a joining node.
func (g *Gossip) ExportKeyring() ([]byte, error) {
	text, err := json.Marshal(keyringJSON{Keys: g.keys.GetKeys()})
	if err != nil {
		return nil, fmt.Errorf("export gossip keyring: %w", err)
	}
	return text, nil
}

func saveKeyring(dir *datadir.Dir, keys [][]byte) error {
	text, err := json.MarshalIndent(keyringJSON{keys, file.Unsealed}, "", "\t")
	if err != nil {
		return fmt.Errorf("save gossip keyring: %w", err)
	}
	if err := file.WriteSealed(dir.KeyringPath(), append(text, '\n')); err != nil {
		return fmt.Errorf("save gossip keyring: %w", err)
	}
	return nil
}

func (g *Gossip) loadKeyring() error {
	text, err := file.ReadSealed(g.dir.KeyringPath())
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
