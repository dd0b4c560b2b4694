package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// ObjectWrite is a stream of bytes that becomes the content of an object.
type ObjectWrite struct {
	Actor  fsm.Actor
	Bucket *compute.Bucket
	Body   io.Reader
	Meta   *compute.ObjectMeta // Metadata that is kept beside the record; nil for none.
	Max    int64               // Bytes; 0 for compute.MaxObjectSize.
}

// Objects stores the content of objects and reads it.
type Objects interface {
	// Bucket returns the bucket of the actor's organization. It makes the first one,
	// for which it moves view on.
	Bucket(ctx context.Context, view **fsm.View, actor fsm.Actor) (*compute.Bucket, error)
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

// storage serves the files that organizations keep.
type storage struct{ *core }

// routes returns the routes of the group.
func (g *storage) routes() []edge.Route {
	const at, tag = root + "/storage", "Storage Files"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: at + "/list-files", Tag: tag, Need: edge.NeedCaller,
			Summary: "The files of the organization by key. The header X-Next-Cursor says that there are more.",
			Query:   of[wire.FilesQuery](), Reply: of[[]wire.File](), Handle: g.list,
		},
		{
			Method: http.MethodPost, Path: at + "/upload", Tag: tag, Need: edge.NeedCaller,
			Summary: "Store a file: multipart/form-data with the part file, and optionally key, content_type and sha256 in" +
				" fields. The file is there once all of it is, in place of one with its key. If-Match and If-None-Match hold.",
			Query: of[wire.UploadQuery](), Streamed: true, Reply: of[wire.UploadedFile](), Handle: g.upload,
		},
		{
			Method: http.MethodPost, Path: at + "/upload-bulk", Tag: tag, Need: edge.NeedCaller,
			Summary: "Store up to 1000 files: multipart/form-data with a part files for each, whose file name may have a path," +
				" and optionally a field folder_prefix. One that cannot be stored does not keep the others.",
			Streamed: true, Reply: of[wire.BulkUpload](), Handle: g.uploadBulk,
		},
		{
			Method: http.MethodGet, Path: at + "/download/{file_key}", Tag: tag, Need: edge.NeedCaller, Rest: true,
			Summary: "A file as it is. The key may have slashes; one at its end is sent as %2F." +
				" Range, If-Range, If-Match and If-None-Match hold.",
			Accepts: []string{edge.OctetStream}, Handle: g.download,
		},
		{
			Method: http.MethodDelete, Path: at + "/delete/{file_key}", Tag: tag, Need: edge.NeedCaller, Rest: true,
			Summary: "Delete a file. If-Match and If-None-Match hold.",
			Reply:   of[wire.DeletedFiles](), Handle: g.remove,
		},
		{
			Method: http.MethodDelete, Path: at + "/delete-folder/{folder_prefix}", Tag: tag, Need: edge.NeedCaller, Rest: true,
			Summary: "Delete the files whose keys begin with the prefix and a slash.",
			Reply:   of[wire.DeletedFiles](), Handle: g.removeFolder,
		},
		{
			Method: http.MethodPost, Path: at + "/copy", Tag: tag, Need: edge.NeedCaller,
			Summary: "Copy a file within the organization. No byte is moved. " +
				"If-Match and If-None-Match hold for the file that is" +
				" written.",
			Body: of[wire.CopyFile](), Reply: of[wire.UploadedFile](), Handle: g.copy,
		},
		{
			Method: http.MethodGet, Path: at + "/usage", Tag: tag, Need: edge.NeedCaller,
			Summary: "Show what the organization stores, and may store.",
			Reply:   of[wire.StorageUsage](), Handle: g.usage,
		},
		{
			Method: http.MethodPost, Path: at + "/credentials", Tag: "Storage Credentials", Need: edge.NeedCaller,
			Summary: "Credentials for the organization's bucket that a client of S3 can use for 12 hours, at the endpoint: the" +
				" node's S3 port, or /s3 of the API where there is none or the API was reached through a proxy or a worker." +
				" They end with the API key or the login that they were made with.",
			Reply: of[wire.StorageCredentials](), Once: true, Handle: g.credentials,
		},
		{
			Method: http.MethodGet, Path: root + "/admin/storage/migrate", Need: edge.NeedOperator,
			Summary: "How far this node is with moving stored files.",
			Reply:   of[wire.StorageMigration](), Handle: g.migration,
		},
		{
			Method: http.MethodPost, Path: root + "/admin/storage/migrate", Need: edge.NeedOperator,
			Summary: "Move all stored files to where new ones go: storage.objects, or the disks of servers.",
			Reply:   of[wire.StorageMigration](), Handle: g.migrate,
		},
		{
			Method: http.MethodPut, Path: root + "/admin/storage/{org}", Need: edge.NeedOperator,
			Summary: "Set what an organization may store.",
			Body:    of[wire.StorageLimits](), Reply: of[wire.Message](), Handle: g.setLimits,
		},
	}
}

// badKey returns a fault of a key, at a place of the request.
func badKey(bad string, loc ...any) error {
	f := new(wire.Faults)
	f.Value(bad, loc...)
	return f.Err()
}

// errNoFile is the same answer for an absent file and for one of another organization.
func errNoFile() error {
	return compute.Errorf(compute.CodeNotFound, "There is no such file.").Named("file_not_found")
}

// list answers a page of the files.
func (g *storage) list(r *edge.Request) (any, error) {
	in := r.Query.(*wire.FilesQuery)
	if bad := compute.BadObjectPrefix(in.Prefix); bad != "" {
		return nil, badKey(bad, "query", "prefix")
	}
	from := in.Prefix
	if in.Cursor != "" {
		last, err := base64.RawURLEncoding.DecodeString(in.Cursor)
		if err != nil || len(last) > compute.MaxObjectKey {
			return nil, badKey("not a cursor: begin again without one", "query", "cursor")
		}
		from = max(from, string(last)+"\x00")
	}
	var page []*compute.Object
	for o := range r.View.Objects(r.Caller.Actor.Org, from) {
		if !strings.HasPrefix(o.Key, in.Prefix) {
			break
		}
		if len(page) == in.MaxFiles {
			r.SetHeader("X-Next-Cursor", base64.RawURLEncoding.EncodeToString([]byte(page[len(page)-1].Key)))
			break
		}
		page = append(page, o)
	}
	return edge.List{Before: "[", After: "]", Rows: func(context.Context) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			for _, o := range page {
				if !yield(wire.File{Key: o.Key, Size: o.Size, LastModified: o.At, ETag: o.Tag()}, nil) {
					return
				}
			}
		}
	}}, nil
}

// find returns the file whose key is in the path, and its bucket.
func (g *storage) find(r *edge.Request) (*compute.Bucket, *compute.Object, error) {
	b := r.View.Bucket(r.Caller.Actor.Org)
	o, ok := r.View.Object(r.Caller.Actor.Org, r.Params["file_key"])
	if b == nil || !ok {
		return nil, nil, errNoFile()
	}
	return b, o, nil
}

// download answers a file.
func (g *storage) download(r *edge.Request) (any, error) {
	b, o, err := g.find(r)
	if err != nil {
		return nil, err
	}
	same, err := r.CheckTag(o.Tag())
	if err != nil {
		return nil, err
	}
	r.ETag = `"` + o.Tag() + `"`
	r.SetHeader("Last-Modified", o.At.Time().UTC().Format(http.TimeFormat))
	if same {
		return edge.NotModified{}, nil
	}
	meta, err := g.cfg.Objects.Meta(r.Ctx, b, o)
	if err != nil {
		return nil, err
	}
	if meta.Encoding != "" {
		r.SetHeader("Content-Encoding", meta.Encoding)
	}
	return edge.File{
		Name: o.Key, Size: o.Size, Type: meta.Type, Sandbox: true,
		Copy: func(ctx context.Context, w io.Writer, from, length int64) error {
			return g.cfg.Objects.Copy(ctx, b, o, w, from, length)
		},
	}, nil
}

// remove deletes a file.
func (g *storage) remove(r *edge.Request) (any, error) {
	key := r.Params["file_key"]
	if !r.Repeat {
		if _, _, err := g.find(r); err != nil {
			return nil, err
		}
	}
	absent, match := conditions(r, key)
	if absent {
		match = never // It is there.
	} else if match == "*" {
		match = ""
	}
	command := fsm.DeleteObjects{Op: g.Op(r), Actor: r.Caller.Actor, Keys: []string{key}, Match: match}
	result, err := g.Propose(r, command)
	if err != nil {
		return nil, err
	}
	if result.Count == 0 && match != "" {
		return nil, edge.ErrPrecondition()
	}
	if result.Count == 0 {
		return nil, errNoFile()
	}
	return wire.DeletedFiles{Deleted: result.Count, Message: "The file is deleted."}, nil
}

// removeFolder deletes the files below a prefix, some with each command. One that is
// stored meanwhile may stay.
func (g *storage) removeFolder(r *edge.Request) (any, error) {
	prefix := strings.TrimRight(r.Params["folder_prefix"], "/")
	if prefix == "" {
		return nil, badKey("a folder has a name", "path", "folder_prefix")
	}
	prefix += "/"
	if bad := compute.BadObjectPrefix(prefix); bad != "" {
		return nil, badKey(bad, "path", "folder_prefix")
	}
	found := false
	for o := range r.View.Objects(r.Caller.Actor.Org, prefix) {
		found = strings.HasPrefix(o.Key, prefix)
		break
	}
	if !found && !r.Repeat {
		return nil, compute.Errorf(compute.CodeNotFound, "There is no file in this folder.").Named("folder_not_found")
	}
	command := fsm.DeleteObjects{Op: g.Op(r), Actor: r.Caller.Actor, Prefix: prefix}
	deleted := 0
	for {
		result, err := g.Propose(r, command)
		if err != nil {
			return nil, err
		}
		deleted += result.Count
		if result.Count < fsm.MaxObjectDeletes || r.Repeat {
			break
		}
		command.Op = fsm.Op{} // The next batch needs no op: repeating it does no harm.
		r.Renew()
	}
	return wire.DeletedFiles{Deleted: deleted, Message: fmt.Sprintf("%d files are deleted.", deleted)}, nil
}

// copy makes an object of another one's content.
func (g *storage) copy(r *edge.Request) (any, error) {
	in := r.Body.(*wire.CopyFile)
	if bad := compute.BadObjectKey(in.To); bad != "" {
		return nil, badKey(bad, "body", "to")
	}
	from, ok := r.View.Object(r.Caller.Actor.Org, in.From)
	if !ok {
		return nil, errNoFile()
	}
	made := *from
	made.Key = in.To
	absent, match := conditions(r, in.To)
	command := fsm.PutObject{
		Op: g.Op(r), Actor: r.Caller.Actor, Object: made, From: from.Key, FromBlob: from.Blob,
		Absent: absent, Match: match,
	}
	if _, err := g.Propose(r, command); err != nil {
		return nil, err
	}
	return wire.UploadedFile{Key: made.Key, Size: made.Size, ETag: made.Tag(), Message: "The file is copied."}, nil
}

// credentials answers credentials of S3. Nothing is stored of them.
func (g *storage) credentials(r *edge.Request) (any, error) {
	if err := r.View.AllowsObjects(); err != nil {
		return nil, err
	}
	return g.cfg.S3(r.Caller.Actor, r.Caller.Session, r.Base, r.HandedOn())
}

// usage answers what the organization stores.
func (g *storage) usage(r *edge.Request) (any, error) {
	actor := r.Caller.Actor
	all, own := r.View.ObjectUse(actor.Org, compute.UserID{}), r.View.ObjectUse(actor.Org, actor.User)
	out := wire.StorageUsage{Files: all.Objects, Bytes: all.Bytes, OwnBytes: own.Bytes, MaxFiles: compute.MaxObjects}
	if b := r.View.BucketLimits(actor.Org); b != nil {
		out.MaxFiles, out.MaxBytes, out.OwnMaximum = b.ObjectLimit(), b.MaxBytes, b.UserMaxBytes
	}
	return out, nil
}

// migrate starts to move stored files, unless that is being done.
func (g *storage) migrate(r *edge.Request) (any, error) { return g.cfg.Migrate(r.Ctx, true) }

// migration answers how far it is.
func (g *storage) migration(r *edge.Request) (any, error) { return g.cfg.Migrate(r.Ctx, false) }

// setLimits sets what an organization may store.
func (g *storage) setLimits(r *edge.Request) (any, error) {
	in := r.Body.(*wire.StorageLimits)
	org, ok := r.View.OrgBySlug(r.Params["org"])
	if !ok {
		return nil, edge.NotFound()
	}
	_, err := g.Propose(r, fsm.SetBucketLimits{
		Op: g.Op(r), Actor: r.Caller.Actor, Org: org.ID,
		MaxBytes: int64(in.MaxBytes), MaxObjects: in.MaxFiles, UserMaxBytes: int64(in.UserMaxBytes),
	})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: "The limits are set."}, nil
}
