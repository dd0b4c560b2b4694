// Package mirror keeps copies of blobs in the object store that a cluster uses for files:
// the code of executions, and their archives, metrics and outputs.
//
// Servers keep these blobs on their disks, where they are read. The leader's Mirror puts
// those that the state refers to into the store as well, some minutes later. A blob
// that no server has is read from the store. Copies that nothing refers to stay in the
// store's trash for a week, so that the state of a backup finds its blobs.
//
// Copies are encrypted with a key that is derived from the cluster's master key, and their
// names are a keyed hash. The store learns how many blobs there are, their sizes, and when
// each was put.
//
// Rules:
//
//   - Bytes that do not hash to the name of their blob are never returned.
//   - Nothing is moved to the trash while it is not known to what the state refers.
package mirror
