package execution

import (
	"context"
	"encoding/binary"
	"io"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// storeOutputs copies what an execution left to the bucket of its organization, each file
// below a prefix. One of them is stored whole or not at all; a repeat stores the others.
func (g *files) storeOutputs(r *edge.Request) (any, error) {
	in := r.Body.(*wire.StoreOutputs)
	if err := r.Caller.Allows(compute.ScopeStorage); err != nil {
		return nil, err
	}
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	tree, err := g.outputsOf(r.Ctx, r, e)
	if err != nil {
		return nil, err
	}
	if tree == nil {
		return nil, errNoOutput(e)
	}
	prefix := strings.Trim(in.Prefix, "/")
	if prefix != "" {
		prefix += "/"
	}
	for i := range tree.Entries {
		if bad := compute.BadObjectKey(prefix + tree.Entries[i].Path); bad != "" {
			return nil, handler.BadKey(bad+": "+prefix+tree.Entries[i].Path, "body", "prefix")
		}
	}
	b, err := g.Config.Objects.Bucket(r.Ctx, &r.View, r.Caller.Actor)
	if err != nil {
		return nil, err
	}
	op := g.Op(r)
	r.Endure()
	out := wire.StoredOutputs{Prefix: prefix}
	for i := range tree.Entries {
		file := &tree.Entries[i]
		key := prefix + file.Path
		content, err := g.storeOutput(r, b, tree, file)
		if err != nil {
			return nil, err
		}
		own := op // Another one for each file, and never that of the request.
		binary.BigEndian.PutUint16(own.ID.UUID[10:], binary.BigEndian.Uint16(own.ID.UUID[10:])+uint16(i+1))
		_, err = g.Propose(r, command.PutObject{
			Op: own, Actor: r.Caller.Actor, Object: handler.ObjectOf(key, handler.KindOf("", file.Path), content),
			Upload: content.Upload, Revision: content.Parts,
		})
		g.Forget(r, content)
		if err != nil {
			return nil, err
		}
		out.Files++
		out.Bytes += content.Size
	}
	r.Renew()
	return out, nil
}

// storeOutput makes the content of one output durable as that of an object.
func (g *files) storeOutput(
	r *edge.Request, b *compute.Bucket, tree *compute.Tree, file *compute.TreeEntry,
) (compute.Content, error) {
	ctx, cancel := context.WithCancel(r.Ctx)
	defer cancel()
	read, write := io.Pipe()
	defer read.Close()
	go func() {
		reader := compute.NewTreeReader(func(hash compute.Hash) ([]byte, error) { return g.Config.Blobs.Get(ctx, hash) })
		write.CloseWithError(reader.Copy(write, file, tree.ChunkSize, 0, file.Size))
	}()
	return g.Config.Objects.Write(ctx, handler.ObjectWrite{Actor: r.Caller.Actor, Bucket: b, Body: read})
}
