//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// NewUpload is the body of POST /storage/uploads.
type NewUpload struct {
	Key         string `json:"key" required:"true" minlen:"1" maxlen:"1024" doc:"Where to store the file."`
	ContentType string `json:"content_type" maxlen:"64" doc:"Media type; what the name says by default."`
}

// StartedUpload answers POST /storage/uploads.
type StartedUpload struct {
	UploadID string `json:"upload_id"`
	Key      string `json:"key"`
}

// UploadsQuery are the parameters of GET /storage/uploads.
type UploadsQuery struct {
	Key string `json:"key" maxlen:"1024" doc:"Only uploads of this key."`
}

// PartialUpload is an upload in parts that is not complete.
type PartialUpload struct {
	UploadID  string          `json:"upload_id"`
	Key       string          `json:"key"`
	CreatedAt compute.Instant `json:"created_at"`
	ExpiresAt compute.Instant `json:"expires_at" doc:"When it ends unless another part comes."`
}

// UploadPart is a part of an upload.
type UploadPart struct {
	Number int    `json:"number"`
	Size   int64  `json:"size"`
	ETag   string `json:"etag" doc:"MD5 of the part in hexadecimal."`
}

// ChosenPart names a part of an upload.
type ChosenPart struct {
	Number int    `json:"number" required:"true" min:"1" max:"10000"`
	ETag   string `json:"etag" required:"true" maxlen:"64"`
}

// UploadState answers GET /storage/uploads/{upload_id}.
type UploadState struct {
	PartialUpload

	Parts []UploadPart `json:"parts" doc:"Those that came whole, by number."`
}

// CompleteUpload is the body of POST /storage/uploads/{upload_id}/complete.
type CompleteUpload struct {
	Key   string       `json:"key" required:"true" minlen:"1" maxlen:"1024" doc:"The key that the upload began with."`
	Parts []ChosenPart `json:"parts" required:"true" maxitems:"10000" doc:"The parts of the file in order, by number and etag."`
}

// StoreOutputs is the body of POST /execution/{id}/outputs/store.
type StoreOutputs struct {
	Prefix string `json:"prefix" required:"true" maxlen:"1000" doc:"The folder of stored files that they go to; empty for all files."`
}

// StoredOutputs answers POST /execution/{id}/outputs/store.
type StoredOutputs struct {
	Prefix string `json:"prefix"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
}
