// Package remote keeps blobs in an object store that exists already: one that speaks S3,
// Azure Blob Storage, or, in programs that are built with the tag gcs, Google Cloud
// Storage.
//
// A blob is an object with the name of its hash. Copies are objects with names of the caller,
// for package mirror. The bucket belongs to one cluster, which
// marks it. The package knows neither objects nor organizations: the caller of Sweep says
// which blobs are live.
//
// An object store cannot refuse to delete a blob that was just written again. So a sweep
// moves blobs that are not live to the trash, where they can still be read. A later sweep
// deletes them from there, or moves those that are live back.
package remote
