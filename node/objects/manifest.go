package objects

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"berth/compute"
)

// Versions of manifests, their first byte. Version 2 has the synthetic IVs of chunks, and
// is written where there are some. Version 1 stays readable.
const (
	manifestPlain = 1
	manifestIVs   = 2
)

// maxChunks is how many chunks an object has at most: those of the longest one, and one
// more for each part.
const maxChunks = int(compute.MaxObjectSize/compute.MaxChunk) + compute.MaxObjectParts

// chunk is a piece of an object.
type chunk struct {
	blob compute.Hash
	iv   IV    // Zero if nothing but the blob's hash identifies it.
	size int64 // Length of the plaintext.
}

// manifest lists the chunks of an object or of a part of one.
type manifest struct {
	chunks []chunk
	sealed []byte // The compute.ObjectMeta as JSON, encrypted; empty for none.
}

// version returns the first version that can express the manifest.
func (m *manifest) version() byte {
	for _, c := range m.chunks {
		if c.iv != (IV{}) {
			return manifestIVs
		}
	}
	return manifestPlain
}

// encode returns the manifest as a blob.
func (m *manifest) encode() []byte {
	version := m.version()
	out := binary.AppendUvarint([]byte{version}, uint64(len(m.chunks)))
	for _, c := range m.chunks {
		out = append(out, c.blob[:]...)
		if version == manifestIVs {
			out = append(out, c.iv[:]...)
		}
		out = binary.AppendUvarint(out, uint64(c.size))
	}
	out = binary.AppendUvarint(out, uint64(len(m.sealed)))
	return append(out, m.sealed...)
}

// errManifest is the error for a blob that is not a manifest of a known version.
var errManifest = errors.New("not the manifest of an object")

// decodeManifest is the inverse of encode.
func decodeManifest(data []byte) (*manifest, error) {
	in := bytes.NewReader(data)
	version, err := in.ReadByte()
	if err != nil || version != manifestPlain && version != manifestIVs {
		return nil, errManifest
	}
	n, err := binary.ReadUvarint(in)
	if err != nil || n > uint64(maxChunks) || n > uint64(in.Len()) {
		return nil, errManifest
	}
	m := &manifest{chunks: make([]chunk, n)}
	for i := range m.chunks {
		c := &m.chunks[i]
		if _, err := io.ReadFull(in, c.blob[:]); err != nil {
			return nil, errManifest
		}
		if version == manifestIVs {
			if _, err := io.ReadFull(in, c.iv[:]); err != nil {
				return nil, errManifest
			}
		}
		size, err := binary.ReadUvarint(in)
		if err != nil || size == 0 || size > compute.MaxChunk {
			return nil, errManifest
		}
		c.size = int64(size)
	}
	size, err := binary.ReadUvarint(in)
	if err != nil || size != uint64(in.Len()) || size > compute.MaxObjectMeta*2 {
		return nil, errManifest
	}
	m.sealed = bytes.Clone(data[len(data)-int(size):])
	return m, nil
}

// Kinds of ciphertexts of a bucket.
const (
	forChunk = "chunk"
	forMeta  = "meta"
)

// sealMeta returns the encrypted metadata of an object.
func sealMeta(key Key, meta *compute.ObjectMeta) ([]byte, error) {
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	if len(text) > compute.MaxObjectMeta {
		return nil, compute.Errorf(compute.CodeTooLarge,
			"The metadata of a file has at most %d bytes.", compute.MaxObjectMeta).Named("metadata_too_large")
	}
	return key.Seal(text, []byte(forMeta))
}

// openMeta is the inverse of sealMeta.
func openMeta(key Key, sealed []byte) (*compute.ObjectMeta, error) {
	text, err := key.Open(sealed, []byte(forMeta))
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	meta := new(compute.ObjectMeta)
	if err := json.Unmarshal(text, meta); err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	return meta, nil
}
