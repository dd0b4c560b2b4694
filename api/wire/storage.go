//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// FilesQuery are the parameters of GET /storage/list-files.
type FilesQuery struct {
	Prefix   string `json:"prefix" maxlen:"1024" doc:"Only keys that begin with it."`
	MaxFiles int    `json:"max_files" default:"1000" min:"1" max:"10000" doc:"Page size."`
	Cursor   string `json:"cursor" maxlen:"1400" doc:"The X-Next-Cursor of the page before; the first page when absent."`
}

// File is a stored file in a list.
type File struct {
	Key          string          `json:"key"`
	Size         int64           `json:"size"`
	LastModified compute.Instant `json:"last_modified"`
	ETag         string          `json:"etag" doc:"MD5 of the content in hexadecimal; for a file that came in parts that of the parts' MD5s, and their number."`
}

// UploadQuery are the parameters of POST /storage/upload.
type UploadQuery struct {
	Key string `json:"key" maxlen:"1024" doc:"Where to store the file. It may be a form field too; without it the file's own name counts."`
}

// UploadedFile answers POST /storage/upload.
type UploadedFile struct {
	Key     string `json:"key"`
	Size    int64  `json:"size"`
	ETag    string `json:"etag"`
	SHA256  string `json:"sha256" doc:"SHA-256 of the content, in hexadecimal; empty for a file that came in parts, and for a copy."`
	Message string `json:"message"`
}

// BulkFile is the result of one file of POST /storage/upload-bulk.
type BulkFile struct {
	Key          string  `json:"key"`
	Size         int64   `json:"size"`
	ETag         string  `json:"etag" doc:"Empty unless it was stored."`
	Status       string  `json:"status" doc:"success or error."`
	ErrorMessage *string `json:"error_message"`
}

// BulkUpload answers POST /storage/upload-bulk.
type BulkUpload struct {
	TotalFiles        int        `json:"total_files"`
	SuccessfulUploads int        `json:"successful_uploads"`
	FailedUploads     int        `json:"failed_uploads"`
	Results           []BulkFile `json:"results" doc:"One for each file, in the order in which they came."`
	Message           string     `json:"message"`
}

// DeletedFiles answers the deletion of stored files.
type DeletedFiles struct {
	Deleted int    `json:"deleted"`
	Message string `json:"message"`
}

// CopyFile is the body of POST /storage/copy.
type CopyFile struct {
	From string `json:"from" required:"true" minlen:"1" maxlen:"1024" doc:"Key of a stored file."`
	To   string `json:"to" required:"true" minlen:"1" maxlen:"1024" doc:"Key of the copy."`
}

// StorageCredentials answers POST /storage/credentials.
type StorageCredentials struct {
	AccessKey    string          `json:"access_key"`
	SecretKey    string          `json:"secret_key"`
	SessionToken string          `json:"session_token" doc:"Has to be sent too."`
	Endpoint     string          `json:"endpoint" doc:"With its scheme."`
	BucketName   string          `json:"bucket_name"`
	Region       string          `json:"region"`
	ExpiresAt    compute.Instant `json:"expires_at"`
}

// StorageUsage answers GET /storage/usage.
type StorageUsage struct {
	Files      int   `json:"files"`
	Bytes      int64 `json:"bytes" doc:"Size of all files, and of parts of uploads that are not complete."`
	OwnBytes   int64 `json:"own_bytes" doc:"Size of those that the caller has stored."`
	MaxFiles   int   `json:"max_files"`
	MaxBytes   int64 `json:"max_bytes" doc:"0 for no limit."`
	OwnMaximum int64 `json:"own_max_bytes" doc:"0 for no limit."`
}

// StorageMigration answers GET and POST /admin/storage/migrate.
type StorageMigration struct {
	Status string  `json:"status" doc:"none (this node was not asked), running, done or failed."`
	Blobs  int     `json:"blobs" doc:"Encrypted chunks of all stored files."`
	Done   int     `json:"done" doc:"Blobs that are where new files go."`
	Failed int     `json:"failed"`
	Bytes  int64   `json:"bytes" doc:"That were copied."`
	Error  *string `json:"error" doc:"The first one."`
}

// StorageLimits is the body of PUT /admin/storage/{org}.
type StorageLimits struct {
	MaxBytes     int `json:"max_bytes" min:"0" doc:"Limit for all files of the organization; 0 for none."`
	MaxFiles     int `json:"max_files" min:"0" doc:"0 for 1000000."`
	UserMaxBytes int `json:"max_bytes_per_user" min:"0" doc:"Limit for the files that one member has stored; 0 for none."`
}
