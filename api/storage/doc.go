// Package storage has the endpoints of the files that organizations store: lists,
// uploads in one piece, in forms and in parts, downloads, copies and deletions, quotas,
// and credentials for the same files over S3.
//
// It is not for the content of files, which handler.Objects encrypts and keeps, nor for
// bundles and outputs of executions, which package execution serves.
//
// Rules. A file is there whole or not at all: its content is durable before the command
// that publishes it. A content that waits long for the others of its request is recorded
// as a part of an upload, so that it is not removed meanwhile (keep.go).
package storage
