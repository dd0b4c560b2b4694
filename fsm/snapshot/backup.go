package snapshot

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"berth/compute"
)

// A backup is
//
//	magic (8 bytes), format (u16), length (u32), header as JSON
//	a snapshot, in chunks: length (u32, 1 to maxChunk), as many bytes
//	0 (u32), SHA-256 of all before
//
// Numbers are big-endian. The chunks make it a stream that needs no length in
// advance and shows where it was cut.
const (
	backupMagic  = "BERTHBAK"
	backupFormat = 1
	maxHeader    = 64 << 10
	maxChunk     = 256 << 10
)

// BackupHeader says which state of which cluster a backup has.
type BackupHeader struct {
	Cluster compute.UUID    `json:"cluster_id"`
	Epoch   uint64          `json:"epoch"`  // The cluster's epoch.
	Index   uint64          `json:"index"`  // Raft index of the last entry in it.
	Term    uint64          `json:"term"`   // Raft term of that entry.
	Format  uint64          `json:"format"` // Format of the state.
	Version string          `json:"version"`
	At      compute.Instant `json:"saved_at"` // By the clock of the node that wrote it.
}

// ErrBackup is returned for a backup that is incomplete or damaged.
var ErrBackup = errors.New("the backup is damaged")

// WriteBackup writes a backup: header, and the snapshot that write writes.
func WriteBackup(w io.Writer, header BackupHeader, write func(io.Writer) error) error {
	head, err := json.Marshal(header)
	if err != nil {
		return err
	}
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	prefix := binary.BigEndian.AppendUint16([]byte(backupMagic), backupFormat)
	prefix = binary.BigEndian.AppendUint32(prefix, uint32(len(head)))
	if _, err := out.Write(append(prefix, head...)); err != nil {
		return err
	}
	body := bufio.NewWriterSize(chunkWriter{out}, maxChunk)
	if err := write(body); err != nil {
		return err
	}
	if err := body.Flush(); err != nil {
		return err
	}
	if _, err := out.Write(make([]byte, 4)); err != nil {
		return err
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// chunkWriter writes each piece with its length in front.
type chunkWriter struct{ w io.Writer }

func (c chunkWriter) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		piece := rest[:min(len(rest), maxChunk)]
		rest = rest[len(piece):]
		if _, err := c.w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(piece)))); err != nil {
			return 0, err
		}
		if _, err := c.w.Write(piece); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

// CheckBackup reads a backup to its end and compares the checksum. It reports
// that the bytes are those that were written, and nothing about the state in them.
func CheckBackup(r io.Reader) (BackupHeader, error) {
	in, err := OpenBackup(r)
	if err != nil {
		return BackupHeader{}, err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return in.Header, err
	}
	return in.Header, in.Close()
}

// BackupReader reads the snapshot in a backup.
type BackupReader struct {
	Header BackupHeader
	raw    *bufio.Reader
	sum    hash.Hash
	in     io.Reader // Reads raw and adds to sum.
	left   int       // Unread bytes of the current chunk.
	ended  bool
}

// OpenBackup returns a reader of the snapshot in a backup. It has read the header.
func OpenBackup(r io.Reader) (*BackupReader, error) {
	b := &BackupReader{raw: bufio.NewReaderSize(r, maxChunk), sum: sha256.New()}
	b.in = io.TeeReader(b.raw, b.sum)
	prefix, err := b.read(len(backupMagic) + 2 + 4)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(prefix, []byte(backupMagic)) {
		return nil, errors.New("this is no backup of a berth cluster")
	}
	prefix = prefix[len(backupMagic):]
	if format := binary.BigEndian.Uint16(prefix); format != backupFormat {
		return nil, fmt.Errorf("the backup has format %d and this version reads %d: use the version that wrote it",
			format, backupFormat)
	}
	n := binary.BigEndian.Uint32(prefix[2:])
	if n > maxHeader {
		return nil, fmt.Errorf("%w: a header of %d bytes", ErrBackup, n)
	}
	head, err := b.read(int(n))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(head, &b.Header); err != nil {
		return nil, fmt.Errorf("%w: its header cannot be read: %w", ErrBackup, err)
	}
	return b, nil
}

// read returns the next n bytes.
func (b *BackupReader) read(n int) ([]byte, error) {
	data := make([]byte, n)
	_, err := io.ReadFull(b.in, data)
	return data, cutShort(err)
}

// cutShort returns ErrBackup for the end of a stream in the middle of a part.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends early", ErrBackup)
	}
	return err
}

// Read reads the snapshot; io.EOF is its end.
func (b *BackupReader) Read(p []byte) (int, error) {
	if b.left == 0 && !b.ended {
		size, err := b.read(4)
		if err != nil {
			return 0, err
		}
		n := binary.BigEndian.Uint32(size)
		if n > maxChunk {
			return 0, fmt.Errorf("%w: a chunk of %d bytes", ErrBackup, n)
		}
		b.left, b.ended = int(n), n == 0
	}
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, cutShort(err)
}

// Close compares the checksum, after the snapshot was read.
func (b *BackupReader) Close() error {
	want := b.sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(b.raw, got); err != nil {
		return cutShort(err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: its SHA-256 is another one", ErrBackup)
	}
	if _, err := b.raw.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: there is more behind its end", ErrBackup)
	}
	return nil
}
