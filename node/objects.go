package node

import (
	"context"

	"berth/api/handler"
	"berth/compute"
	"berth/node/objects"
	"berth/node/secrets"
)

// bucketKeys makes and opens the keys of buckets.
type bucketKeys struct{ master *secrets.Master }

// New returns the bucket of an organization with a fresh key.
func (k bucketKeys) New(org compute.OrgID) (*compute.Bucket, error) {
	b := &compute.Bucket{Org: org}
	var err error
	b.Sealed, err = k.master.NewObjectKey(b.Context())
	return b, err
}

// Open returns the key of a bucket.
func (k bucketKeys) Open(b *compute.Bucket) (objects.Key, error) {
	return k.master.OpenObjectKey(b.Sealed, b.Context())
}

// openObjects makes what stores the content of objects.
func (n *Node) openObjects(ctx context.Context) error {
	places, err := n.remote.open(ctx)
	if err != nil {
		return err
	}
	n.objects = objects.New(objects.Config{
		Blobs: places, Keys: bucketKeys{n.master}, Propose: n.proposer().Propose,
		Wait:  n.machine.Wait,
		NewID: newID, Now: n.opts.Now, Logger: n.logger,
		SealsChunks: func() bool { return n.machine.View().AllowsChunks() == nil },
	})
	n.remote.openMover(places)
	return nil
}

// storedObjects stores objects for the API.
type storedObjects struct{ *objects.Store }

// Write returns once the bytes are durable on several nodes.
func (s storedObjects) Write(ctx context.Context, w handler.ObjectWrite) (compute.Content, error) {
	return s.Store.Write(ctx, objects.Write{
		Actor: w.Actor, Bucket: w.Bucket, Body: w.Body, Meta: w.Meta, Max: w.Max, SHA256: true,
	})
}
