package storage

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// storage serves the files that organizations keep.
type storage struct{ *handler.Core }

// Routes returns the routes of the group.
func (g *storage) Routes() []edge.Route {
	const at, tag = edge.Root + "/storage", "Storage Files"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: at + "/list-files", Tag: tag, Need: edge.NeedCaller,
			Summary: "The files of the organization by key. The header X-Next-Cursor says that there are more.",
			Query:   edge.Type[wire.FilesQuery](), Reply: edge.Type[[]wire.File](), Handle: g.list,
		},
		{
			Method: http.MethodPost, Path: at + "/upload", Tag: tag, Need: edge.NeedCaller,
			Summary: "Store a file: multipart/form-data with the part file, and optionally key, content_type and sha256 in" +
				" fields. The file is there once all of it is, in place of one with its key. If-Match and If-None-Match hold.",
			Query: edge.Type[wire.UploadQuery](), Streamed: true, Reply: edge.Type[wire.UploadedFile](), Handle: g.upload,
		},
		{
			Method: http.MethodPost, Path: at + "/upload-bulk", Tag: tag, Need: edge.NeedCaller,
			Summary: "Store up to 1000 files: multipart/form-data with a part files for each, whose file name may have a path," +
				" and optionally a field folder_prefix. One that cannot be stored does not keep the others.",
			Streamed: true, Reply: edge.Type[wire.BulkUpload](), Handle: g.uploadBulk,
		},
		{
			Method: http.MethodGet, Path: at + "/download/{file_key}", Tag: tag, Need: edge.NeedCaller, Rest: true,
			Summary: "A file as it is. The key may have slashes; one at its end is sent as %2F." +
				" Range, If-Range, If-Match and If-None-Match hold.",
			Accepts: []string{answer.OctetStream}, Handle: g.download,
		},
		{
			Method: http.MethodDelete, Path: at + "/delete/{file_key}", Tag: tag, Need: edge.NeedCaller, Rest: true,
			Summary: "Delete a file. If-Match and If-None-Match hold.",
			Reply:   edge.Type[wire.DeletedFiles](), Handle: g.remove,
		},
		{
			Method: http.MethodDelete, Path: at + "/delete-folder/{folder_prefix}", Tag: tag, Need: edge.NeedCaller, Rest: true,
			Summary: "Delete the files whose keys begin with the prefix and a slash.",
			Reply:   edge.Type[wire.DeletedFiles](), Handle: g.removeFolder,
		},
		{
			Method: http.MethodPost, Path: at + "/copy", Tag: tag, Need: edge.NeedCaller,
			Summary: "Copy a file within the organization. No byte is moved. " +
				"If-Match and If-None-Match hold for the file that is" +
				" written.",
			Body: edge.Type[wire.CopyFile](), Reply: edge.Type[wire.UploadedFile](), Handle: g.copy,
		},
		{
			Method: http.MethodGet, Path: at + "/usage", Tag: tag, Need: edge.NeedCaller,
			Summary: "Show what the organization stores, and may store.",
			Reply:   edge.Type[wire.StorageUsage](), Handle: g.usage,
		},
		{
			Method: http.MethodPost, Path: at + "/credentials", Tag: "Storage Credentials", Need: edge.NeedCaller,
			Summary: "Credentials for the organization's bucket that a client of S3 can use for 12 hours, at the endpoint: the" +
				" node's S3 port, or /s3 of the API where there is none or the API was reached through a proxy or a worker." +
				" They end with the API key or the login that they were made with.",
			Reply: edge.Type[wire.StorageCredentials](), Once: true, Handle: g.credentials,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/storage/migrate", Need: edge.NeedOperator,
			Summary: "How far this node is with moving stored files.",
			Reply:   edge.Type[wire.StorageMigration](), Handle: g.migration,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/admin/storage/migrate", Need: edge.NeedOperator,
			Summary: "Move all stored files to where new ones go: storage.objects, or the disks of servers.",
			Reply:   edge.Type[wire.StorageMigration](), Handle: g.migrate,
		},
		{
			Method: http.MethodPut, Path: edge.Root + "/admin/storage/{org}", Need: edge.NeedOperator,
			Summary: "Set what an organization may store.",
			Body:    edge.Type[wire.StorageLimits](), Reply: edge.Type[wire.Message](), Handle: g.setLimits,
		},
	}
}

// errNoFile is the same answer for an absent file and for one of another organization.
func errNoFile() error {
	return compute.Errorf(compute.CodeNotFound, "There is no such file.").Named("file_not_found")
}

// list answers a page of the files.
func (g *storage) list(r *edge.Request) (any, error) {
	in := r.Query.(*wire.FilesQuery)
	if bad := compute.BadObjectPrefix(in.Prefix); bad != "" {
		return nil, handler.BadKey(bad, "query", "prefix")
	}
	from := in.Prefix
	if in.Cursor != "" {
		last, err := base64.RawURLEncoding.DecodeString(in.Cursor)
		if err != nil || len(last) > compute.MaxObjectKey {
			return nil, handler.BadKey("not a cursor: begin again without one", "query", "cursor")
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
	return answer.List{Before: "[", After: "]", Rows: func(context.Context) iter.Seq2[any, error] {
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
		return answer.NotModified{}, nil
	}
	meta, err := g.Config.Objects.Meta(r.Ctx, b, o)
	if err != nil {
		return nil, err
	}
	if meta.Encoding != "" {
		r.SetHeader("Content-Encoding", meta.Encoding)
	}
	return answer.File{
		Name: o.Key, Size: o.Size, Type: meta.Type, Sandbox: true,
		Copy: func(ctx context.Context, w io.Writer, from, length int64) error {
			return g.Config.Objects.Copy(ctx, b, o, w, from, length)
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
	cmd := command.DeleteObjects{Op: g.Op(r), Actor: r.Caller.Actor, Keys: []string{key}, Match: match}
	result, err := g.Propose(r, cmd)
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
		return nil, handler.BadKey("a folder has a name", "path", "folder_prefix")
	}
	prefix += "/"
	if bad := compute.BadObjectPrefix(prefix); bad != "" {
		return nil, handler.BadKey(bad, "path", "folder_prefix")
	}
	found := false
	for o := range r.View.Objects(r.Caller.Actor.Org, prefix) {
		found = strings.HasPrefix(o.Key, prefix)
		break
	}
	if !found && !r.Repeat {
		return nil, compute.Errorf(compute.CodeNotFound, "There is no file in this folder.").Named("folder_not_found")
	}
	cmd := command.DeleteObjects{Op: g.Op(r), Actor: r.Caller.Actor, Prefix: prefix}
	deleted := 0
	for {
		result, err := g.Propose(r, cmd)
		if err != nil {
			return nil, err
		}
		deleted += result.Count
		if result.Count < command.MaxObjectDeletes || r.Repeat {
			break
		}
		cmd.Op = command.Op{} // The next batch needs no op: repeating it does no harm.
		r.Renew()
	}
	return wire.DeletedFiles{Deleted: deleted, Message: fmt.Sprintf("%d files are deleted.", deleted)}, nil
}

// copy makes an object of another one's content.
func (g *storage) copy(r *edge.Request) (any, error) {
	in := r.Body.(*wire.CopyFile)
	if bad := compute.BadObjectKey(in.To); bad != "" {
		return nil, handler.BadKey(bad, "body", "to")
	}
	from, ok := r.View.Object(r.Caller.Actor.Org, in.From)
	if !ok {
		return nil, errNoFile()
	}
	made := *from
	made.Key = in.To
	absent, match := conditions(r, in.To)
	cmd := command.PutObject{
		Op: g.Op(r), Actor: r.Caller.Actor, Object: made, From: from.Key, FromBlob: from.Blob,
		Absent: absent, Match: match,
	}
	if _, err := g.Propose(r, cmd); err != nil {
		return nil, err
	}
	return wire.UploadedFile{Key: made.Key, Size: made.Size, ETag: made.Tag(), Message: "The file is copied."}, nil
}

// credentials answers credentials of S3. Nothing is stored of them.
func (g *storage) credentials(r *edge.Request) (any, error) {
	if err := r.View.AllowsObjects(); err != nil {
		return nil, err
	}
	var hash compute.Hash
	if key, ok := r.View.Key(r.Caller.Actor.Org, r.Caller.Actor.Key); ok {
		hash = key.Hash
	}
	return g.Config.S3(r.Caller.Actor, r.Caller.Session, hash, r.Base, r.HandedOn())
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
func (g *storage) migrate(r *edge.Request) (any, error) { return g.Config.Migrate(r.Ctx, true) }

// migration answers how far it is.
func (g *storage) migration(r *edge.Request) (any, error) { return g.Config.Migrate(r.Ctx, false) }

// setLimits sets what an organization may store.
func (g *storage) setLimits(r *edge.Request) (any, error) {
	in := r.Body.(*wire.StorageLimits)
	org, ok := r.View.OrgBySlug(r.Params["org"])
	if !ok {
		return nil, edge.NotFound()
	}
	_, err := g.Propose(r, command.SetBucketLimits{
		Op: g.Op(r), Actor: r.Caller.Actor, Org: org.ID,
		MaxBytes: int64(in.MaxBytes), MaxObjects: in.MaxFiles, UserMaxBytes: int64(in.UserMaxBytes),
	})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: "The limits are set."}, nil
}
