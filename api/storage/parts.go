package storage

import (
	"mime"
	"net/http"
	"strconv"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// partUploads serves files that are sent in parts.
type partUploads struct{ *storage }

// Routes returns the routes of the group.
func (g *partUploads) Routes() []edge.Route {
	const at, tag = edge.Root + "/storage/uploads", "Storage Files"
	return []edge.Route{
		{
			Method: http.MethodPost, Path: at, Tag: tag, Need: edge.NeedCaller,
			Summary: "Begin to store a file in parts, which may come in any order, several at a time, and to any node." +
				" Stored parts are kept for a week.",
			Body: edge.Type[wire.NewUpload](), Reply: edge.Type[wire.StartedUpload](), Handle: g.start,
		},
		{
			Method: http.MethodGet, Path: at, Tag: tag, Need: edge.NeedCaller,
			Summary: "The uploads in parts that are not complete.",
			Query:   edge.Type[wire.UploadsQuery](), Reply: edge.Type[[]wire.PartialUpload](), Handle: g.listUploads,
		},
		{
			Method: http.MethodGet, Path: at + "/{upload_id}", Tag: tag, Need: edge.NeedCaller,
			Summary: "The parts of an upload that have come.",
			Reply:   edge.Type[wire.UploadState](), Handle: g.state,
		},
		{
			Method: http.MethodPut, Path: at + "/{upload_id}/parts/{number}", Tag: tag, Need: edge.NeedCaller,
			Summary: "Store a part, which is the body, in place of one with its number: 1 to 10000." +
				" All but the last one have 5 MiB or more.",
			Streamed: true, Reply: edge.Type[wire.UploadPart](), Handle: g.putPart,
		},
		{
			Method: http.MethodPost, Path: at + "/{upload_id}/complete", Tag: tag, Need: edge.NeedCaller,
			Summary: "Make a file of parts. It is there whole, in place of one with its key." +
				" If-Match and If-None-Match hold.",
			Body: edge.Type[wire.CompleteUpload](), Reply: edge.Type[wire.UploadedFile](), Handle: g.complete,
		},
		{
			Method: http.MethodDelete, Path: at + "/{upload_id}", Tag: tag, Need: edge.NeedCaller,
			Summary: "Give up an upload in parts.",
			Reply:   edge.Type[wire.Message](), Handle: g.abort,
		},
	}
}

// errNoUpload is the same answer for an absent upload and for one of another organization.
func errNoUpload() error {
	return compute.Errorf(compute.CodeNotFound, "There is no such upload: it was completed, aborted or has expired.").
		Named("upload_not_found")
}

// uploadOf returns the upload that the path names.
func (g *partUploads) uploadOf(r *edge.Request) (*compute.ObjectUpload, error) {
	id, err := compute.ParseObjectUploadID(r.Params["upload_id"])
	if err != nil {
		return nil, errNoUpload()
	}
	u, ok := r.View.ObjectUpload(r.Caller.Actor.Org, id)
	if !ok || u.Key == "" {
		return nil, errNoUpload()
	}
	return u, nil
}

// partial returns an upload as clients see it.
func partial(u *compute.ObjectUpload) wire.PartialUpload {
	return wire.PartialUpload{UploadID: u.ID.String(), Key: u.Key, CreatedAt: u.CreatedAt, ExpiresAt: u.ExpiresAt()}
}

// start begins an upload.
func (g *partUploads) start(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewUpload)
	if bad := compute.BadObjectKey(in.Key); bad != "" {
		return nil, handler.BadKey(bad, "body", "key")
	}
	if _, _, err := mime.ParseMediaType(in.ContentType); err != nil && in.ContentType != "" {
		return nil, handler.BadKey("not a media type", "body", "content_type")
	}
	b, err := g.Config.Objects.Bucket(r.Ctx, &r.View, r.Caller.Actor)
	if err != nil {
		return nil, err
	}
	if err := g.checkSpace(r, b); err != nil {
		return nil, err
	}
	kind := in.ContentType
	if kind == "" {
		kind = handler.KindOf("", in.Key)
	}
	u := compute.ObjectUpload{ID: compute.ObjectUploadID{UUID: g.NewID()}, Key: in.Key}
	if u.Meta, err = g.Config.Objects.SealMeta(b, &compute.ObjectMeta{Type: kind}); err != nil {
		return nil, err
	}
	result, err := g.Propose(r, command.StartObjectUpload{Op: g.Op(r), Actor: r.Caller.Actor, Upload: u})
	if err != nil {
		return nil, err
	}
	id := compute.ObjectUploadID{UUID: result.ID}
	return wire.StartedUpload{UploadID: id.String(), Key: u.Key}, nil
}

// listUploads answers the uploads that are not complete.
func (g *partUploads) listUploads(r *edge.Request) (any, error) {
	in := r.Query.(*wire.UploadsQuery)
	out := []wire.PartialUpload{}
	for u := range r.View.ObjectUploads(r.Caller.Actor.Org) {
		if u.Key != "" && (in.Key == "" || u.Key == in.Key) {
			out = append(out, partial(u))
		}
	}
	return out, nil
}

// state answers the parts of an upload.
func (g *partUploads) state(r *edge.Request) (any, error) {
	u, err := g.uploadOf(r)
	if err != nil {
		return nil, err
	}
	out := wire.UploadState{PartialUpload: partial(u), Parts: []wire.UploadPart{}}
	for p := range r.View.ObjectParts(u.ID, 0) {
		out.Parts = append(out.Parts, wire.UploadPart{Number: p.Number, Size: p.Size, ETag: p.Tag()})
	}
	return out, nil
}

// putPart stores a part.
func (g *partUploads) putPart(r *edge.Request) (any, error) {
	u, err := g.uploadOf(r)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(r.Params["number"])
	if err != nil || number < 1 || number > compute.MaxObjectParts {
		return nil, handler.BadKey("parts have the numbers 1 to "+strconv.Itoa(compute.MaxObjectParts), "path", "number")
	}
	b := r.View.Bucket(r.Caller.Actor.Org)
	if err := g.checkSpace(r, b); err != nil {
		return nil, err
	}
	space := r.View.ObjectPartSpace(u, number)
	if r.Length() > space {
		return nil, fsm.ErrObjectQuota()
	}
	r.Endure()
	body := compute.Bounded(r.Incoming(), space, fsm.ErrObjectQuota())
	content, err := g.Config.Objects.Write(r.Ctx, handler.ObjectWrite{Actor: r.Caller.Actor, Bucket: b, Body: body})
	if cut := r.Cut(); cut != nil {
		return nil, cut
	}
	if err != nil {
		return nil, err
	}
	r.Renew()
	r.Sum(content.SHA256[:])
	p := compute.ObjectPart{
		Upload: u.ID, Number: number, Size: content.Size, ETag: content.ETag, Blob: content.Blob, Whole: content.Whole,
	}
	_, err = g.Propose(r, command.PutObjectPart{Op: g.Op(r), Actor: r.Caller.Actor, Part: p})
	if !content.Upload.IsZero() { // It kept the bytes of a slow part. If this fails, it expires.
		_, _ = g.Propose(r, command.AbortObjectUpload{Actor: r.Caller.Actor, Upload: content.Upload})
	}
	if err != nil {
		return nil, err
	}
	return wire.UploadPart{Number: number, Size: p.Size, ETag: p.Tag()}, nil
}

// complete makes a file of parts.
func (g *partUploads) complete(r *edge.Request) (any, error) {
	if r.Repeat {
		return g.completed(r)
	}
	u, err := g.uploadOf(r)
	if err != nil {
		return nil, err
	}
	if u.Key != r.Body.(*wire.CompleteUpload).Key {
		return nil, errNoUpload()
	}
	absent, match := conditions(r, u.Key)
	parts, err := chosenParts(r, u)
	if err != nil {
		return nil, err
	}
	b := r.View.Bucket(r.Caller.Actor.Org)
	meta, err := g.Config.Objects.OpenMeta(b, u.Meta)
	if err != nil {
		return nil, err
	}
	content, err := g.Config.Objects.Join(r.Ctx, b, parts, meta)
	if err != nil {
		return nil, err
	}
	o := compute.Object{
		Key: u.Key, Size: content.Size, ETag: content.ETag, Blob: content.Blob, Whole: content.Whole,
		Type: meta.Type, Parts: int32(len(parts)),
	}
	_, err = g.Propose(r, command.PutObject{
		Op: g.Op(r), Actor: r.Caller.Actor, Object: o, Upload: u.ID, Revision: u.Revision, Absent: absent, Match: match,
	})
	if err != nil {
		return nil, err
	}
	return wire.UploadedFile{Key: o.Key, Size: o.Size, ETag: o.Tag(), Message: "The file is stored."}, nil
}

// completed answers a completion again: the upload is gone, and its file is there unless
// it was replaced or deleted.
func (g *partUploads) completed(r *edge.Request) (any, error) {
	if r.First.Refusal != nil {
		return nil, r.First.Refusal
	}
	out := wire.UploadedFile{Key: r.Body.(*wire.CompleteUpload).Key, Message: "The file was stored."}
	if o, ok := r.View.Object(r.Caller.Actor.Org, out.Key); ok {
		out.Size, out.ETag = o.Size, o.Tag()
	}
	return out, nil
}

// chosenParts returns the parts of an upload that a client names, in their order.
func chosenParts(r *edge.Request, u *compute.ObjectUpload) ([]*compute.ObjectPart, error) {
	known := map[int]*compute.ObjectPart{}
	for p := range r.View.ObjectParts(u.ID, 0) {
		known[p.Number] = p
	}
	var parts []*compute.ObjectPart
	last := 0
	for i, n := range r.Body.(*wire.CompleteUpload).Parts {
		p, ok := known[n.Number]
		switch {
		case n.Number <= last:
			return nil, handler.BadKey("parts come in the order of their numbers, each once", "body", "parts", i)
		case !ok || p.Tag() != n.ETag:
			return nil, compute.Errorf(compute.CodeConflict,
				"Part %d has not come, or is another one: send it again.", n.Number).Named("part_differs")
		case len(parts) > 0 && parts[len(parts)-1].Size < compute.MinObjectPart:
			return nil, compute.Errorf(compute.CodeInvalid, "Part %d has less than %d bytes, and is not the last one.",
				last, compute.MinObjectPart).Named("part_too_small")
		}
		last = n.Number
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return nil, handler.BadKey("a file has at least one part", "body", "parts")
	}
	return parts, nil
}

// abort gives up an upload.
func (g *partUploads) abort(r *edge.Request) (any, error) {
	id, err := compute.ParseObjectUploadID(r.Params["upload_id"])
	if err != nil {
		return nil, errNoUpload()
	}
	if !r.Repeat {
		if _, err := g.uploadOf(r); err != nil {
			return nil, err
		}
	}
	if _, err := g.Propose(r, command.AbortObjectUpload{Op: g.Op(r), Actor: r.Caller.Actor, Upload: id}); err != nil {
		return nil, err
	}
	return wire.Message{Message: "The upload is given up."}, nil
}
