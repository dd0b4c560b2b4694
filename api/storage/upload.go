package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// Limits of forms.
const (
	maxFormField = 2 << 10 // Bytes of a field that is not a file.
	maxFormParts = 1100    // Files and fields.
	maxBulkFiles = 1000
)

// errForm refuses a body that is not a form.
func errForm(err error) error {
	if e, ok := errors.AsType[*compute.Error](err); ok {
		return e
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return compute.Errorf(compute.CodeInvalid, "The request ended early.").Named("bad_request")
	}
	return compute.Errorf(compute.CodeInvalid, "The form cannot be read: %w", err).Named("bad_form")
}

// form reads the parts of a form, one after the other.
type form struct {
	*multipart.Reader
	parts int
}

// next returns the next part, nil behind the last one.
func (f *form) next() (*multipart.Part, error) {
	part, err := f.NextRawPart()
	if err == io.EOF { //nolint:errorlint // Wrapped it is a form without its end.
		return nil, nil
	}
	if err != nil {
		return nil, errForm(err)
	}
	if f.parts++; f.parts > maxFormParts {
		return nil, compute.Errorf(compute.CodeTooLarge, "A form has at most %d parts.", maxFormParts).Named("too_many_files")
	}
	return part, nil
}

// fileName returns the name of a part that is a file, with its path.
func fileName(part *multipart.Part) (name string, is bool) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name, is = params["filename"]
	return name, is && err == nil
}

// fieldValue returns the value of a part that is not a file.
func fieldValue(part *multipart.Part) (string, error) {
	data, err := io.ReadAll(io.LimitReader(part, maxFormField+1))
	if err != nil {
		return "", errForm(err)
	}
	if len(data) > maxFormField {
		return "", handler.BadKey(fmt.Sprintf("a field has at most %d bytes", maxFormField), "body", part.FormName())
	}
	return string(data), nil
}

// incomingFile is a file of a form, stored and not yet published.
type incomingFile struct {
	key     string
	kind    string // Media type.
	content compute.Content
	err     error // Why it cannot be stored, although others can.
}

// object returns the record of the file.
func (f *incomingFile) object() compute.Object {
	return handler.ObjectOf(f.key, f.kind, f.content)
}

// formRest is more than what can follow a file in a form.
const formRest = 4 << 20

// store makes the bytes of a part durable, of which there may be as many as there is
// space. The error is that of the whole request. The keeper, if there is one, keeps the
// files before it.
func (g *storage) store(
	r *edge.Request, b *compute.Bucket, part *multipart.Part, name string, space int64, kept *keeper,
) (incomingFile, error) {
	f := incomingFile{key: name, kind: handler.KindOf(part.Header.Get("Content-Type"), name)}
	if len(f.kind) > compute.MaxObjectType {
		f.kind = ""
	}
	if f.err = g.checkSpace(r, b); f.err != nil {
		return f, nil //nolint:nilerr // The part is refused, not the request.
	}
	body := compute.Bounded(part, space, fsm.ErrObjectQuota())
	if kept != nil {
		body = keepingReader{body, kept}
	} else if r.Length()-formRest > space {
		return f, fsm.ErrObjectQuota()
	}
	f.content, f.err = g.Config.Objects.Write(r.Ctx, handler.ObjectWrite{Actor: r.Caller.Actor, Bucket: b, Body: body})
	if cut := r.Cut(); cut != nil {
		return f, cut
	}
	if kept != nil && kept.failed != nil {
		return f, kept.failed
	}
	if errors.Is(f.err, io.ErrUnexpectedEOF) {
		return f, errForm(f.err)
	}
	return f, nil
}

// checkSpace refuses a file before its bytes arrive, if the bucket is full.
func (g *storage) checkSpace(r *edge.Request, b *compute.Bucket) error {
	actor := r.Caller.Actor
	all, own := r.View.ObjectUse(actor.Org, compute.UserID{}), r.View.ObjectUse(actor.Org, actor.User)
	if b.MaxBytes > 0 && all.Bytes > b.MaxBytes || b.UserMaxBytes > 0 && own.Bytes > b.UserMaxBytes {
		return compute.Errorf(compute.CodeForbidden,
			"The organization or the user may not store more: delete some files, or ask the operator for more.").
			Named("storage_quota_exceeded")
	}
	return nil
}

// begin prepares a request whose body is a form with files.
func (g *storage) begin(r *edge.Request) (*compute.Bucket, *form, error) {
	reader, err := r.Form()
	if err != nil {
		return nil, nil, err
	}
	b, err := g.Config.Objects.Bucket(r.Ctx, &r.View, r.Caller.Actor)
	if err != nil {
		return nil, nil, err
	}
	r.Endure()
	return b, &form{Reader: reader}, nil
}

// upload stores one file.
func (g *storage) upload(r *edge.Request) (any, error) {
	fields := map[string]string{"key": r.Query.(*wire.UploadQuery).Key}
	if bad := compute.BadObjectKey(fields["key"]); bad != "" && fields["key"] != "" {
		return nil, handler.BadKey(bad, "query", "key")
	}
	f, err := g.readUpload(r, fields)
	defer g.Forget(r, f.content)
	if err != nil {
		return nil, err
	}
	absent, match := conditions(r, f.key)
	cmd := command.PutObject{
		Actor: r.Caller.Actor, Object: f.object(), Upload: f.content.Upload, Revision: f.content.Parts,
		Absent: absent, Match: match,
	}
	r.Renew()
	r.Sum(append(f.content.SHA256[:], f.key...))
	cmd.Op = g.Op(r)
	if _, err := g.Propose(r, cmd); err != nil {
		return nil, err
	}
	return wire.UploadedFile{
		Key: f.key, Size: f.content.Size, ETag: cmd.Object.Tag(),
		SHA256: compute.Digest(f.content.SHA256).String(), Message: "The file is stored.",
	}, nil
}

// never is an ETag that no object has.
const never = `""`

// conditions returns those of a write to a key, as a command has them. Where the request
// lists ETags, a write that comes before the command may refuse it.
func conditions(r *edge.Request, key string) (absent bool, match string) {
	tag := ""
	if o, ok := r.View.Object(r.Caller.Actor.Org, key); ok {
		tag = o.Tag()
	}
	switch {
	case edge.AnyTag(r.IfMatch):
		match = "*"
	case r.IfMatch != "":
		match = never
		for one, weak := range edge.Tags(r.IfMatch) {
			if !weak && one != "" && (one == tag || match == never) {
				match = one
			}
		}
	}
	switch none := r.IfNoneMatch; {
	case none == "":
	case edge.AnyTag(none):
		absent = true
	case tag != "" && edge.NamesTag(none, tag, true):
		match = never
	case tag == "":
		absent = true
	case match == "" || match == "*":
		match = tag
	}
	return absent, match
}

// readUpload reads the form of one file. Fields has those of the query.
func (g *storage) readUpload(r *edge.Request, fields map[string]string) (f incomingFile, err error) {
	b, parts, err := g.begin(r)
	if err != nil {
		return f, err
	}
	found := false
	for {
		part, err := parts.next()
		if err != nil {
			return f, err
		}
		if part == nil {
			break
		}
		name, isFile := fileName(part)
		switch {
		case isFile && found:
			return f, compute.Errorf(compute.CodeInvalid, "The form has more than one file: use /storage/upload-bulk.").
				Named("several_files")
		case isFile:
			found = true
			space := r.View.ObjectSpace(r.Caller.Actor, fields["key"])
			if f, err = g.store(r, b, part, name, space, nil); err == nil {
				err = f.err
			}
		case fields[part.FormName()] == "":
			fields[part.FormName()], err = fieldValue(part)
		}
		if err != nil {
			return f, err
		}
	}
	if !found {
		faults := new(wire.Faults)
		faults.Missing("body", "file")
		return f, faults.Err()
	}
	return f, f.complete(fields)
}

// complete sets what the fields of a form say of its file.
func (f *incomingFile) complete(fields map[string]string) error {
	if key := fields["key"]; key != "" {
		f.key = key
	}
	if bad := compute.BadObjectKey(f.key); bad != "" {
		return handler.BadKey(bad, "body", "key")
	}
	if kind := fields["content_type"]; kind != "" {
		if _, _, err := mime.ParseMediaType(kind); err != nil || len(kind) > compute.MaxObjectType {
			return handler.BadKey("not a media type of at most 64 bytes", "body", "content_type")
		}
		f.kind = kind
	} else if f.kind == "" {
		f.kind = handler.KindOf("", f.key)
	}
	if sum := fields["sha256"]; sum != "" && !strings.EqualFold(sum, compute.Digest(f.content.SHA256).String()) {
		return compute.Errorf(compute.CodeInvalid,
			"The %d bytes that came do not have the checksum %.64q: send them again.", f.content.Size, sum).
			Named("checksum_differs")
	}
	return nil
}

// uploadBulk stores several files. Those that came whole are published one by one.
func (g *storage) uploadBulk(r *edge.Request) (any, error) {
	b, parts, err := g.begin(r)
	if err != nil {
		return nil, err
	}
	kept := &keeper{storage: g, r: r}
	defer kept.end()
	files, prefix, err := g.storeAll(r, b, parts, kept)
	defer func() {
		for i := range files {
			g.Forget(r, files[i].content)
		}
	}()
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		faults := new(wire.Faults)
		faults.Missing("body", "files")
		return nil, faults.Err()
	}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	g.publish(r, files, prefix)
	return bulkResult(files), nil
}

// storeAll stores the files of a form and returns them, also beside an error, and the prefix
// that they are to have.
func (g *storage) storeAll(
	r *edge.Request, b *compute.Bucket, parts *form, kept *keeper,
) (files []incomingFile, prefix string, err error) {
	space := r.View.ObjectSpace(r.Caller.Actor, "") // Only at the end it is known what they replace.
	for {
		part, err := parts.next()
		if err != nil || part == nil {
			return files, prefix, err
		}
		name, isFile := fileName(part)
		switch {
		case isFile && len(files) == maxBulkFiles:
			return files, "", compute.Errorf(compute.CodeTooLarge,
				"A form has at most %d files.", maxBulkFiles).Named("too_many_files")
		case isFile:
			begun := g.Now()
			f, err := g.store(r, b, part, name, space, kept)
			space -= f.content.Size
			files = append(files, f)
			if err != nil {
				return files, "", err
			}
			if f.err == nil {
				kept.add(f.content, begun)
			}
		case part.FormName() == "folder_prefix":
			if prefix, err = fieldValue(part); err != nil {
				return files, "", err
			}
		}
		if err := kept.skip(part); err != nil {
			return files, "", err
		}
	}
}

// publish makes files visible below a prefix, and sets the errors of those that it
// cannot.
func (g *storage) publish(r *edge.Request, files []incomingFile, prefix string) {
	var sum []byte
	for i := range files {
		f := &files[i]
		f.key = prefix + strings.TrimLeft(f.key, "/")
		if bad := compute.BadObjectKey(f.key); bad != "" && f.err == nil {
			f.err = compute.Errorf(compute.CodeInvalid, "The key cannot be used: %s.", bad)
		}
		sum = append(append(sum, f.content.SHA256[:]...), f.key...)
	}
	r.Sum(sum)
	op := g.Op(r)
	var commands []command.Command
	var of []*incomingFile
	for i := range files {
		if f := &files[i]; f.err == nil {
			own := op
			binary.BigEndian.PutUint16(own.ID.UUID[10:], binary.BigEndian.Uint16(own.ID.UUID[10:])+uint16(i))
			commands = append(commands, command.PutObject{
				Op: own, Actor: r.Caller.Actor, Object: f.object(),
				Upload: f.content.Upload, Revision: f.content.Parts,
			})
			of = append(of, f)
		}
	}
	r.Renew()
	for i, err := range g.ProposeEach(r, commands) {
		of[i].err = err
	}
}

// bulkResult reports the result of each file.
func bulkResult(files []incomingFile) wire.BulkUpload {
	out := wire.BulkUpload{TotalFiles: len(files), Results: make([]wire.BulkFile, 0, len(files))}
	for i := range files {
		f, o := &files[i], files[i].object()
		key := strings.ToValidUTF8(f.key, "\uFFFD")
		row := wire.BulkFile{Key: key, Size: f.content.Size, ETag: o.Tag(), Status: "success"}
		if f.err != nil {
			why := compute.MessageOf(f.err)
			row.ETag, row.Status, row.ErrorMessage = "", "error", &why
			out.FailedUploads++
		}
		out.Results = append(out.Results, row)
	}
	out.SuccessfulUploads = out.TotalFiles - out.FailedUploads
	out.Message = fmt.Sprintf("%d of %d files are stored.", out.SuccessfulUploads, out.TotalFiles)
	return out
}
