package storage

import (
	"context"
	"errors"
	"fmt"

	"berth/compute"
)

// maxShort is the size up to which a blob is put with one message: a stream takes three
// more, and their system calls are most of what a small blob costs.
const maxShort = maxJournaled

// ErrNotShort means that a node does not know messages, as older ones do not.
var ErrNotShort = errors.New("the node takes no blobs as messages")

// putShort makes a small blob durable on another node, and reports whether that was
// tried: it is not, if the blob is large or the node does not know it.
func (b *Blobs) putShort(
	ctx context.Context, node compute.NodeID, hash compute.Hash, data []byte,
) (tried bool, err error) {
	if b.cfg.Message == nil || len(data) > maxShort {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	err = b.cfg.Message(ctx, node, append(request{op: opPut, hash: hash, size: len(data)}.encode(), data...))
	if errors.Is(err, ErrNotShort) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("ask node %s: %w", node, err)
	}
	return true, nil
}

// ServeMessage makes the blob of another node's message durable on this node's disk.
func (b *Blobs) ServeMessage(ctx context.Context, message []byte) error {
	q, err := decodeRequest(message[:min(len(message), requestBytes)])
	if err != nil {
		return err
	}
	data := message[requestBytes:]
	if q.op != opPut || q.size != len(data) {
		return compute.Errorf(compute.CodeInvalid, "not the message of a blob")
	}
	release, err := acquire(ctx, b.shorts)
	if err != nil {
		return err
	}
	defer release()
	return b.putLocal(q.hash, data)
}
