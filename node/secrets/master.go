package secrets

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"berth/compute"
)

const (
	fileFormat  = 1        // The version of the key file.
	maxFile     = 64 << 10 // No key file is larger.
	maxDerived  = 255 * 32 // The limit of HKDF-SHA256.
	maxSealable = 16 << 20 // The most bytes that Seal takes.
)

// Reasons for which there is no usable master key.
var (
	// ErrMissing means that this node has no master key.
	ErrMissing = errors.New("the master key is missing")
	// ErrForeign means that the master key is another cluster's.
	ErrForeign = errors.New("the master key belongs to another cluster")
	// ErrDamaged means that the file's content has changed.
	ErrDamaged = errors.New("the master key is damaged: put back the copy that was kept, " +
		"or copy it from another server of the cluster")
)

// Master seals and derives with the master key. Its methods are safe for
// concurrent use.
type Master struct {
	opened   atomic.Pointer[opened]
	changing sync.Mutex // Held while the file is replaced.
}

// opened is the content of a key file.
type opened struct {
	file   []byte
	prefix []byte // Prefix of values that are sealed with it.
	aead   tink.AEAD
	prf    *prf.Set
}

// file is the key file's content.
type file struct {
	Format  int             `json:"format"`
	Cluster compute.UUID    `json:"cluster"`
	AEAD    json.RawMessage `json:"aead"` // A tink keyset, so that keys can be added and retired.
	PRF     json.RawMessage `json:"prf"`  // A tink keyset of one key.

	// Sum is the checksum of the keysets. Without it, a flipped bit would yield
	// other keys, which open nothing. Older files have none.
	Sum string `json:"crc32c,omitempty"`
}

// sum returns the checksum of the keysets.
func (f *file) sum() (string, error) {
	var text bytes.Buffer // Without white space, which does not count.
	err := errors.Join(json.Compact(&text, f.AEAD), json.Compact(&text, f.PRF))
	return fmt.Sprintf("%08x", crc32.Checksum(text.Bytes(), crc32.MakeTable(crc32.Castagnoli))), err
}

// Create makes the master key of a new cluster and writes it to path. It never
// replaces a file: the code is conflict when one exists.
func Create(path string, cluster compute.UUID) (*Master, error) {
	f := file{Format: fileFormat, Cluster: cluster}
	var err error
	if f.AEAD, err = newKeyset(aead.AES256GCMKeyTemplate()); err != nil {
		return nil, fmt.Errorf("create master key: %w", err)
	}
	if f.PRF, err = newKeyset(prf.HKDFSHA256PRFKeyTemplate()); err != nil {
		return nil, fmt.Errorf("create master key: %w", err)
	}
	if f.Sum, err = f.sum(); err != nil {
		return nil, fmt.Errorf("create master key: %w", err)
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("create master key: %w", err)
	}
	m, err := parse(data, cluster)
	if err == nil {
		err = writeNew(path, data)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil, compute.Errorf(compute.CodeConflict, "there is a master key at %s already", path)
	}
	if err != nil {
		return nil, fmt.Errorf("create master key: %w", err)
	}
	return m, nil
}

// Import writes to path the master key that a server returned from Bytes. It
// may be repeated with the same key. If another key exists there, the code is
// conflict.
func Import(path string, data []byte, cluster compute.UUID) (*Master, error) {
	m, err := parse(data, cluster)
	if err != nil {
		return nil, fmt.Errorf("import master key: %w", err)
	}
	err = writeNew(path, data)
	if !errors.Is(err, fs.ErrExist) {
		if err != nil {
			return nil, fmt.Errorf("import master key: %w", err)
		}
		return m, nil
	}
	old, err := Open(path, cluster)
	if err != nil {
		return nil, fmt.Errorf("import master key: %w", err)
	}
	if subtle.ConstantTimeCompare(old.Bytes(), m.Bytes()) != 1 {
		return nil, compute.Errorf(compute.CodeConflict, "there is another master key at %s already", path)
	}
	return old, nil
}

// Open reads the master key at path. It returns ErrMissing and ErrForeign as
// documented, and refuses a file that others than its owner may read.
func Open(path string, cluster compute.UUID) (*Master, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w: restore it from the copy that was kept, "+
			"or copy it from another server of the cluster", path, ErrMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("open master key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 || info.Size() > maxFile {
		return nil, fmt.Errorf("open %s: its mode is %v and its size %d: it must be 0600 and at most %d bytes",
			path, info.Mode().Perm(), info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("open master key: %w", err)
	}
	m, err := parse(data, cluster)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return m, nil
}

// Bytes returns the key file's content, for another server's Import. It is the
// secret itself.
func (m *Master) Bytes() []byte { return bytes.Clone(m.opened.Load().file) }

// Seal encrypts plaintext. Unseal returns the plaintext only with the same
// context, which names what the plaintext belongs to.
func (m *Master) Seal(plaintext, context []byte) ([]byte, error) {
	if len(plaintext) > maxSealable {
		return nil, compute.Errorf(compute.CodeTooLarge, "at most %d bytes can be sealed", maxSealable)
	}
	sealed, err := m.opened.Load().aead.Encrypt(plaintext, context)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return sealed, nil
}

// Unseal decrypts bytes that Seal returned for the same context.
func (m *Master) Unseal(sealed, context []byte) ([]byte, error) {
	plaintext, err := m.opened.Load().aead.Decrypt(sealed, context)
	if err != nil {
		return nil, fmt.Errorf("unseal: %w", err)
	}
	return plaintext, nil
}

// Derive returns a key of n bytes, at most 8,160, for one purpose. The same
// purpose gives the same key on every server. No key reveals another.
func (m *Master) Derive(purpose string, n int) []byte {
	if n < 1 || n > maxDerived {
		panic(fmt.Sprintf("secrets: cannot derive %d bytes", n))
	}
	key, err := m.opened.Load().prf.ComputePrimaryPRF([]byte(purpose), uint32(n))
	if err != nil {
		panic("secrets: derive: " + err.Error()) // parse has derived a key with it.
	}
	return key
}

// newKeyset returns a fresh keyset as JSON.
func newKeyset(template *tinkpb.KeyTemplate) ([]byte, error) {
	handle, err := keyset.NewHandle(template)
	if err != nil {
		return nil, err
	}
	// The keyset is stored in the clear: no other key exists to encrypt it.
	var buf bytes.Buffer
	err = insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&buf))
	return buf.Bytes(), err
}

// parse returns the master key of a file's content.
func parse(data []byte, cluster compute.UUID) (*Master, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil || f.Format != fileFormat {
		return nil, fmt.Errorf("not a master key file of format %d", fileFormat)
	}
	if f.Cluster != cluster {
		return nil, fmt.Errorf("%w: it is of %s, this is %s", ErrForeign, f.Cluster, cluster)
	}
	if f.Sum != "" {
		if sum, err := f.sum(); err != nil || f.Sum != sum {
			return nil, ErrDamaged
		}
	}
	o := &opened{file: bytes.Clone(data)}
	handle, err := readKeyset(f.AEAD)
	if err != nil {
		return nil, err
	}
	o.prefix = prefixOf(handle)
	if o.aead, err = aead.New(handle); err != nil {
		return nil, fmt.Errorf("read sealing keys: %w", err)
	}
	if handle, err = readKeyset(f.PRF); err != nil {
		return nil, err
	}
	if o.prf, err = prf.NewPRFSet(handle); err != nil {
		return nil, fmt.Errorf("read deriving key: %w", err)
	}
	if _, err := o.prf.ComputePrimaryPRF(nil, maxDerived); err != nil {
		return nil, fmt.Errorf("try deriving key: %w", err)
	}
	m := new(Master)
	m.opened.Store(o)
	return m, nil
}

// readKeyset returns the keyset that newKeyset wrote.
func readKeyset(data []byte) (*keyset.Handle, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(data)))
	if err != nil {
		return nil, fmt.Errorf("read keyset: %w", err)
	}
	return handle, nil
}
