// Package remote keeps blobs in an object store that exists already: one that speaks S3,
// Azure Blob Storage, or, in programs that are built with the tag gcs, Google Cloud
// Storage.
//
// A blob is an object with the name of its hash. What is in the store belongs to one
// cluster, which marks it. The package knows neither objects nor organizations: whoever
// calls Sweep says which blobs live.
//
// An object store cannot refuse to delete what was just written again. So a sweep moves
// what nobody needs to the trash, where it is found still, and a later one deletes it
// from there, or brings it back if it lives.
package remote
