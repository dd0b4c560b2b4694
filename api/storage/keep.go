package storage

import (
	"io"
	"time"

	"berth/api/edge"
	"berth/compute"
	"berth/fsm/command"
)

// Times of contents that are stored and not yet published. Blobs that nothing refers to
// for an hour are removed.
const (
	keepAfter = 20 * time.Minute
	keepRetry = time.Minute
	keepLimit = 40 * time.Minute
)

// keeper keeps the finished contents of a request that goes on. Once they are old it
// records them as parts of an upload, which nobody sees. The parts have no size: the
// files count when they are published. Its methods are for one goroutine.
type keeper struct {
	*storage
	r *edge.Request

	upload *command.StartObjectUpload // Nil before the first part; its outcome may be unknown.
	begun  bool                       // The state has it.
	parts  int
	fresh  []compute.Content // Not recorded yet.
	since  time.Time         // When the oldest of fresh began to come.
	next   time.Time         // The next try, after one that failed.
	failed error             // It did not work for too long: what came is lost.
}

// add takes a finished content, and when it began to come. One that was long to come has
// an upload of its own.
func (k *keeper) add(c compute.Content, begun time.Time) {
	if c.Blob == (compute.Hash{}) || !c.Upload.IsZero() {
		return
	}
	if len(k.fresh) == 0 {
		k.since = begun
	}
	k.fresh = append(k.fresh, c)
}

// renew records what is old. It fails, for good, when that has not worked for long.
func (k *keeper) renew() error {
	now := k.Now()
	if k.failed != nil {
		return k.failed
	}
	if len(k.fresh) == 0 || now.Sub(k.since) < keepAfter || now.Before(k.next) {
		return nil
	}
	err := k.record()
	if err == nil {
		return nil
	}
	k.next = now.Add(keepRetry)
	if now.Sub(k.since) >= keepLimit {
		k.failed = err
	}
	return k.failed
}

// skip reads what is left of a part.
func (k *keeper) skip(part io.Reader) error {
	_, err := io.Copy(io.Discard, keepingReader{part, k})
	if err == nil || k.failed != nil {
		return k.failed
	}
	if cut := k.r.Cut(); cut != nil {
		return cut
	}
	return errForm(err)
}

// record records all of fresh.
func (k *keeper) record() error {
	if k.upload == nil {
		k.upload = &command.StartObjectUpload{Op: k.op(), Actor: k.r.Caller.Actor}
		k.upload.Upload.ID.UUID = k.NewID()
	}
	if !k.begun {
		if err := k.propose(*k.upload); err != nil {
			return err
		}
		k.begun = true
	}
	for len(k.fresh) > 0 {
		c := k.fresh[0]
		part := compute.ObjectPart{Upload: k.upload.Upload.ID, Number: k.parts + 1, Blob: c.Blob, Whole: c.Whole}
		if err := k.propose(command.PutObjectPart{Op: k.op(), Actor: k.r.Caller.Actor, Part: part}); err != nil {
			return err
		}
		k.parts, k.fresh = part.Number, k.fresh[1:]
	}
	return nil
}

// end forgets the contents, which are published or were refused. If that fails, the
// upload expires.
func (k *keeper) end() {
	if k.upload != nil {
		k.Forget(k.r, compute.Content{Upload: k.upload.Upload.ID})
	}
}

func (k *keeper) op() command.Op {
	return command.Op{ID: compute.OpID{UUID: k.NewID()}, Org: k.r.Caller.Actor.Org}
}

// propose proposes a command that is not the one by which the request is recognised.
func (k *keeper) propose(cmd command.Command) error {
	return k.ProposeEach(k.r, []command.Command{cmd})[0]
}

// keepingReader reads a file while a keeper keeps those before it.
type keepingReader struct {
	io.Reader
	keeper *keeper
}

// Read implements io.Reader.
func (k keepingReader) Read(p []byte) (int, error) {
	if err := k.keeper.renew(); err != nil {
		return 0, err
	}
	return k.Reader.Read(p)
}
