package rpc

import (
	"bytes"
	"testing"
	"time"
)

// deadlines is a stream that counts how much is transferred after each deadline.
type deadlines struct {
	bytes.Buffer

	read, written         int // Deadlines that were set.
	mostRead, mostWritten int // Bytes after one deadline.
	since                 int
}

func (d *deadlines) SetReadDeadline(time.Time) error {
	d.read++
	d.since = 0
	return nil
}

func (d *deadlines) SetWriteDeadline(time.Time) error {
	d.written++
	d.since = 0
	return nil
}

func (d *deadlines) Write(data []byte) (int, error) {
	d.since += len(data)
	d.mostWritten = max(d.mostWritten, d.since)
	return d.Buffer.Write(data)
}

func (d *deadlines) Read(data []byte) (int, error) {
	n, err := d.Buffer.Read(data[:min(len(data), 1000)]) // As a slow link delivers.
	d.since += n
	d.mostRead = max(d.mostRead, d.since)
	return n, err
}

// TestLargeMessagesHaveTime checks that a message of any size is transferred as long as
// the link transfers a piece within the time of one.
func TestLargeMessagesHaveTime(t *testing.T) {
	d := new(deadlines)
	codec := NewCodec()
	sent := make([]byte, 3<<20)
	if err := codec.write(patient{d}, sent, MaxRequest); err != nil {
		t.Fatal(err)
	}
	if d.mostWritten > messagePiece || d.written < len(sent)/messagePiece {
		t.Errorf("%d bytes within one of %d deadlines", d.mostWritten, d.written)
	}
	var got []byte
	if err := codec.read(patient{d}, &got, MaxRequest); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	if d.mostRead > 1000 {
		t.Errorf("%d bytes within one deadline", d.mostRead)
	}
}
