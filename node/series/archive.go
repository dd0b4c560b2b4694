package series

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"berth/compute"
)

// maxFile bounds the size of a series, so that a damaged archive fills no memory.
const maxFile = headerBytes + (MaxPoints+1)*pointBytes

// Archive returns the series of an attempt for an archive, nil if it has none.
func (s *Store) Archive(execution compute.ExecutionID, epoch uint64) ([]byte, error) {
	data, err := os.ReadFile(s.path(execution, epoch))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) < headerBytes+pointBytes {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("archive metrics: %w", err)
	}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(data)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("archive metrics: %w", err)
	}
	return out.Bytes(), nil
}

// ReadArchive returns the points in an archive with from < At <= to.
func ReadArchive(data []byte, from, to compute.Instant) ([]Point, error) {
	b, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxFile))
	if err != nil {
		return nil, fmt.Errorf("read archived metrics: %w", err)
	}
	if len(b) < headerBytes || binary.LittleEndian.Uint32(b) != fileVersion {
		return nil, errors.New("read archived metrics: it is none, or of another version")
	}
	var points []Point
	for b = b[headerBytes:]; len(b) >= pointBytes; b = b[pointBytes:] {
		points = append(points, decodePoint(b))
	}
	return between(points, from, to), nil
}

// between returns the points with from < At <= to, in the place of points.
func between(points []Point, from, to compute.Instant) []Point {
	out := points[:0]
	for _, p := range points {
		if p.At > from && p.At <= to {
			out = append(out, p)
		}
	}
	return out
}
