package storage

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"berth/compute"
	"berth/fault"
)

// Limits of the journal.
const (
	maxJournaled  = 64 << 10 // Bytes of a blob that is journaled.
	segmentSize   = 16 << 20 // Bytes after which a segment is followed by another.
	segmentsLimit = 4        // Segment sizes after which puts wait for the files of the one before.
)

// journal makes small blobs durable together: one write and one sync for all that
// arrive while the last ones are written. Their files are written without a sync of
// their own. A segment is removed once everything on the file system is synced; until
// then Open makes from it the files that a power cut took.
//
// A record is its magic, the size, the hash, a checksum of these, and the data, which the
// hash checks.
type journal struct {
	dir   string
	limit int64 // segmentSize, less in tests.

	mu sync.Mutex

	next     uint64 // The number of the next segment.
	segment  *segment
	waiting  *batch        // Collects records; nil for none.
	flushing bool          // A goroutine writes batches until none waits.
	retired  chan struct{} // Closed once the segment before is gone; nil for none.
}

// segment is one file of a journal.
type segment struct {
	file  *os.File
	size  int64
	users sync.WaitGroup // Puts whose records are in it and whose files are not written.
}

// batch is a number of records that are written together.
type batch struct {
	records []byte
	puts    int
	done    chan struct{} // Closed after the fields below are set.

	segment *segment
	err     error
}

const (
	recordMagic = "bbj1"
	recordHead  = len(recordMagic) + 4 + sha256.Size + 4
)

// appendRecord appends the record of a blob.
func appendRecord(to []byte, hash compute.Hash, data []byte) []byte {
	begun := len(to)
	to = append(to, recordMagic...)
	to = binary.BigEndian.AppendUint32(to, uint32(len(data)))
	to = append(to, hash[:]...)
	to = binary.BigEndian.AppendUint32(to, crc32.ChecksumIEEE(to[begun:]))
	return append(to, data...)
}

// add returns once a record of the blob is durable. The caller calls written when the
// blob's file is written, or will not be.
func (j *journal) add(hash compute.Hash, data []byte) (written func(), err error) {
	j.mu.Lock()
	if j.waiting == nil {
		j.waiting = &batch{done: make(chan struct{})}
	}
	b := j.waiting
	b.records = appendRecord(b.records, hash, data)
	b.puts++
	if !j.flushing {
		j.flushing = true
		go j.flush()
	}
	j.mu.Unlock()
	<-b.done
	if b.err != nil {
		return nil, b.err
	}
	return b.segment.users.Done, nil
}

// flush writes batches until none waits.
func (j *journal) flush() {
	for {
		j.mu.Lock()
		b := j.waiting
		j.waiting = nil
		if b == nil {
			j.flushing = false
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
		b.segment, b.err = j.write(b)
		close(b.done)
	}
}

// write makes a batch durable. Only the goroutine that flushes calls it.
func (j *journal) write(b *batch) (*segment, error) {
	s, err := j.open()
	if err != nil {
		return nil, err
	}
	_, err = s.file.Write(b.records)
	if err == nil {
		err = fault.Error("storage.journal.sync")
	}
	if err == nil {
		err = unix.Fdatasync(int(s.file.Fd()))
	}
	if err != nil {
		// The disk may have any part of the batch. None of it is acknowledged.
		_ = s.file.Truncate(s.size)
		j.retire(s)
		return nil, err
	}
	fault.Point("storage.journal.synced")
	s.size += int64(len(b.records))
	s.users.Add(b.puts)
	return s, nil
}

// open returns the segment to write to.
func (j *journal) open() (*segment, error) {
	if s := j.segment; s != nil && s.size >= j.limit {
		idle := j.retired == nil
		if !idle {
			select {
			case <-j.retired:
				idle = true
			default:
			}
		}
		if !idle && s.size >= segmentsLimit*j.limit {
			<-j.retired
			idle = true
		}
		if idle {
			j.retire(s)
		}
	}
	if j.segment != nil {
		return j.segment, nil
	}
	file, err := os.OpenFile(filepath.Join(j.dir, fmt.Sprintf("%016x", j.next)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	j.next++
	if err := syncDir(j.dir); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	j.segment = &segment{file: file}
	return j.segment, nil
}

// retire has a segment removed once the files of its blobs are durable.
func (j *journal) retire(s *segment) {
	before, gone := j.retired, make(chan struct{})
	j.segment, j.retired = nil, gone
	go func() {
		defer close(gone)
		if before != nil {
			<-before
		}
		s.users.Wait()
		if err := unix.Syncfs(int(s.file.Fd())); err == nil {
			_ = os.Remove(s.file.Name()) // Otherwise the next Open removes it.
		}
		_ = s.file.Close() // Everything that counts is synced.
	}()
}

// close waits for what is being written, and closes the segment, which stays.
func (j *journal) close() error {
	if j.retired != nil {
		<-j.retired
	}
	if j.segment == nil {
		return nil
	}
	return j.segment.file.Close()
}

// replay calls restore with each blob of the segments that an earlier process has left,
// and removes the segments whose blobs are all durable then.
func (j *journal) replay(restore func(compute.Hash, []byte) error) error {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	var whole []string
	for _, e := range entries {
		path := filepath.Join(j.dir, e.Name())
		if _, err := fmt.Sscanf(e.Name(), "%016x", &j.next); err != nil {
			continue // Not ours.
		}
		j.next++
		if err := replaySegment(path, restore); err == nil {
			whole = append(whole, path)
		}
	}
	if len(whole) == 0 {
		return nil
	}
	dir, err := os.Open(j.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return err
	}
	for _, path := range whole {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// replaySegment calls restore with each blob of a segment. A record that is cut off was
// never acknowledged, nor was one behind it.
func replaySegment(path string, restore func(compute.Hash, []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	var failed error
	for head := make([]byte, recordHead); ; {
		if _, err := io.ReadFull(in, head); err != nil {
			return failed
		}
		sum := recordHead - 4
		size := int(binary.BigEndian.Uint32(head[len(recordMagic):]))
		if string(head[:len(recordMagic)]) != recordMagic || size > maxJournaled ||
			crc32.ChecksumIEEE(head[:sum]) != binary.BigEndian.Uint32(head[sum:]) {
			return failed
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(in, data); err != nil {
			return failed
		}
		hash := compute.Hash(head[len(recordMagic)+4 : sum])
		if sha256.Sum256(data) == hash {
			failed = errors.Join(failed, restore(hash, data))
		}
	}
}
