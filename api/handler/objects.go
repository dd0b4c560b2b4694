package handler

import (
	"context"
	"io"
	"mime"
	"path"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// ObjectWrite is a stream of bytes that becomes the content of an object.
type ObjectWrite struct {
	Actor  command.Actor
	Bucket *compute.Bucket
	Body   io.Reader
	Meta   *compute.ObjectMeta // Metadata that is kept beside the record; nil for none.
	Max    int64               // Bytes; 0 for compute.MaxObjectSize.
}

// Objects stores the content of objects and reads it.
type Objects interface {
	// Bucket returns the bucket of the actor's organization. It makes the first one,
	// for which it moves view on.
	Bucket(ctx context.Context, view **fsm.View, actor command.Actor) (*compute.Bucket, error)
	// Write returns once the bytes are durable on several nodes. They are kept if a
	// command refers to them soon.
	Write(ctx context.Context, w ObjectWrite) (compute.Content, error)
	// Meta returns the metadata of an object.
	Meta(ctx context.Context, b *compute.Bucket, o *compute.Object) (*compute.ObjectMeta, error)
	// SealMeta seals the metadata of an object that is uploaded in parts; OpenMeta is its
	// inverse.
	SealMeta(b *compute.Bucket, meta *compute.ObjectMeta) ([]byte, error)
	OpenMeta(b *compute.Bucket, sealed []byte) (*compute.ObjectMeta, error)
	// Join returns the content that parts are together, one behind the other.
	Join(
		ctx context.Context, b *compute.Bucket, parts []*compute.ObjectPart, meta *compute.ObjectMeta,
	) (compute.Content, error)
	// Copy writes length bytes of an object from an offset on.
	Copy(ctx context.Context, b *compute.Bucket, o *compute.Object, w io.Writer, from, length int64) error
}

// ObjectOf returns the record of a content that is stored under a key, with its media
// type.
func ObjectOf(key, kind string, c compute.Content) compute.Object {
	o := compute.Object{Key: key, Size: c.Size, ETag: c.ETag, Blob: c.Blob, Whole: c.Whole}
	if len(kind) <= compute.MaxObjectType {
		o.Type = kind
	}
	return o
}

// KindOf returns the media type of a file: the client's, if it gives one, or that of
// the key's extension.
func KindOf(said, key string) string {
	if kind, _, err := mime.ParseMediaType(said); err == nil && kind != answer.OctetStream {
		return said
	}
	return mime.TypeByExtension(path.Ext(key))
}

// BadKey returns a fault of a key, at a place of the request.
func BadKey(bad string, loc ...any) error {
	f := new(wire.Faults)
	f.Value(bad, loc...)
	return f.Err()
}

// Forget ends the upload that kept a content which was long to come, unless that was
// published: until it expires it would count toward quotas.
func (c *Core) Forget(r *edge.Request, content compute.Content) {
	if content.Upload.IsZero() {
		return
	}
	r.Renew()
	op := command.Op{ID: compute.OpID{UUID: c.NewID()}, Org: r.Caller.Actor.Org}
	c.ProposeEach(r, []command.Command{command.AbortObjectUpload{Op: op, Actor: r.Caller.Actor, Upload: content.Upload}})
}
