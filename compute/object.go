package compute

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of stored objects.
const (
	MaxObjectKey     = 1024               // Bytes.
	MaxObjectType    = 64                 // Bytes of a media type that a record has itself.
	MaxObjectMeta    = 8 << 10            // Bytes of all that describes an object.
	MaxObjectSize    = int64(1) << 40     // Bytes.
	MaxObjectParts   = 10_000             // Parts of one upload.
	MinObjectPart    = 5 << 20            // Bytes of every part but the last.
	MaxObjectUploads = 1_000              // Uploads of one organization at a time.
	MaxObjects       = 1_000_000          // Objects of one organization, unless an operator sets another limit.
	ObjectUploadKept = 7 * 24 * time.Hour // Time since the last part.
)

// ETag is the MD5 of an object's content, or of the MD5s of its parts, as clients of S3
// expect. It identifies nothing that has to be trusted.
type ETag [16]byte

// Object is the record of a stored file. The state has up to a million of them, so
// that everything which may be long is in its manifest.
type Object struct {
	Org  OrgID   `cbor:"1,keyasint"`
	Key  string  `cbor:"2,keyasint"`
	User UserID  `cbor:"3,keyasint"` // The user that stored it.
	Size int64   `cbor:"4,keyasint,omitempty"`
	ETag ETag    `cbor:"5,keyasint"`
	At   Instant `cbor:"6,keyasint"`

	// Blob is the only chunk of the content, or the manifest that lists the chunks.
	// It is zero for an object without bytes and without metadata.
	Blob  Hash   `cbor:"7,keyasint,omitzero"`
	Parts int32  `cbor:"8,keyasint,omitempty"`  // Parts of the upload; 0 if it came in one piece.
	Whole bool   `cbor:"9,keyasint,omitempty"`  // Blob is the only chunk.
	Type  string `cbor:"10,keyasint,omitempty"` // Media type; "" if the manifest has it, or nobody knows.
}

// MaxOutputsPrefix bounds Execution.OutputsPrefix.
const MaxOutputsPrefix = 512

// BadOutputsPrefix returns why no files can be stored below a prefix; "" if they can.
func BadOutputsPrefix(prefix string) string {
	if len(prefix) > MaxOutputsPrefix {
		return fmt.Sprintf("it has more than %d bytes", MaxOutputsPrefix)
	}
	return BadObjectKey(prefix + "/a")
}

// Tag returns the ETag of an object as clients see it, without quotes.
func (o *Object) Tag() string { return tagOf(o.ETag, o.Parts) }

func tagOf(sum ETag, parts int32) string {
	tag := hex.EncodeToString(sum[:])
	if parts > 0 {
		tag += "-" + strconv.Itoa(int(parts))
	}
	return tag
}

// Content describes the stored bytes of a stream before they are published.
type Content struct {
	Size   int64
	ETag   ETag
	Blob   Hash
	Whole  bool
	SHA256 Hash           // Hash of the bytes.
	Upload ObjectUploadID // Keeps the received parts of a long upload; zero for none.
	Parts  uint64         // The revision of that upload.
}

// ObjectMeta describes an object, beside its record.
type ObjectMeta struct {
	Type     string            `json:"type,omitempty"`
	Encoding string            `json:"encoding,omitempty"` // Content-Encoding.
	Language string            `json:"language,omitempty"`
	Position string            `json:"disposition,omitempty"`
	Cache    string            `json:"cache,omitempty"`
	Expires  string            `json:"expires,omitempty"`
	Custom   map[string]string `json:"custom,omitempty"`
}

// Short reports whether a record can have all of it.
func (m *ObjectMeta) Short() bool {
	return len(m.Type) <= MaxObjectType && m.Encoding == "" && m.Language == "" && m.Position == "" &&
		m.Cache == "" && m.Expires == "" && len(m.Custom) == 0
}

// Bucket is where an organization keeps its objects: the key that they are encrypted
// with, itself sealed with the master key, and their limits. Without the key they are
// lost.
type Bucket struct {
	Org       OrgID   `cbor:"1,keyasint"`
	Sealed    []byte  `cbor:"2,keyasint,omitempty"` // Empty once the organization has ended.
	CreatedAt Instant `cbor:"3,keyasint"`

	MaxBytes     int64 `cbor:"4,keyasint,omitempty"` // Bytes of all objects; 0 for no limit.
	MaxObjects   int   `cbor:"5,keyasint,omitempty"` // 0 for MaxObjects.
	UserMaxBytes int64 `cbor:"6,keyasint,omitempty"` // Bytes that one user may store; 0 for no limit.
}

// Context returns the context that the key is sealed for.
func (b *Bucket) Context() []byte { return []byte("bucket " + b.Org.String()) }

// ObjectLimit returns how many objects the bucket may have.
func (b *Bucket) ObjectLimit() int {
	if b.MaxObjects > 0 {
		return b.MaxObjects
	}
	return MaxObjects
}

// ObjectUse counts the objects of a bucket and their bytes.
type ObjectUse struct {
	Objects int
	Bytes   int64 // Bytes of objects and of parts that are not yet part of an object.
}

// ObjectUpload is the record of an upload in parts that is not complete.
type ObjectUpload struct {
	ID        ObjectUploadID `cbor:"1,keyasint"`
	Org       OrgID          `cbor:"2,keyasint"`
	User      UserID         `cbor:"3,keyasint"`
	Key       string         `cbor:"4,keyasint,omitempty"` // "" for an upload that is one request.
	Meta      []byte         `cbor:"5,keyasint,omitempty"` // Sealed.
	CreatedAt Instant        `cbor:"6,keyasint"`
	TouchedAt Instant        `cbor:"7,keyasint"`
	Revision  uint64         `cbor:"8,keyasint,omitempty"` // Rises with each part.
}

// ExpiresAt returns when the upload ends unless another part comes before.
func (u *ObjectUpload) ExpiresAt() Instant { return u.TouchedAt.Add(ObjectUploadKept) }

// ObjectPart is a part of an upload.
type ObjectPart struct {
	Upload ObjectUploadID `cbor:"1,keyasint"`
	Number int            `cbor:"2,keyasint"` // From 1.
	Size   int64          `cbor:"3,keyasint,omitempty"`
	ETag   ETag           `cbor:"4,keyasint"`
	Blob   Hash           `cbor:"5,keyasint,omitzero"` // As that of an Object.
	Whole  bool           `cbor:"6,keyasint,omitempty"`
	At     Instant        `cbor:"7,keyasint"`
}

// Tag returns the ETag of a part.
func (p *ObjectPart) Tag() string { return tagOf(p.ETag, 0) }

// BadObjectKey returns why key cannot name an object, "" if it can. A key is never the
// path of a file here, but it is where clients copy objects to.
func BadObjectKey(key string) string {
	if key == "" || len(key) > MaxObjectKey {
		return fmt.Sprintf("a key has 1 to %d bytes", MaxObjectKey)
	}
	return badKeyText(key)
}

// BadObjectPrefix is BadObjectKey for the beginning of keys, which may be empty.
func BadObjectPrefix(prefix string) string {
	if len(prefix) > MaxObjectKey {
		return fmt.Sprintf("a prefix has at most %d bytes", MaxObjectKey)
	}
	if !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, unicode.IsControl) {
		return "a prefix is UTF-8 without control characters"
	}
	return ""
}

func badKeyText(key string) string {
	if !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
		return "a key is UTF-8 without control characters"
	}
	for segment := range strings.FieldsFuncSeq(key, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return "a key has no segment '.' or '..'"
		}
	}
	return ""
}
