// Package mirror keeps copies of blobs in the object store that a cluster uses for files:
// the code of executions, and their archives, metrics and outputs.
//
// Servers keep these blobs on their disks, where they are read. The leader's Mirror puts
// those that the state refers to into the store as well, some minutes later, and removes
// the others from it. When no server has a blob any more, it is read from the store. So a
// backup of the state and the object store are all that a lost cluster needs.
//
// Copies are encrypted with a key that is derived from the cluster's master key, and their
// names are a keyed hash: the store learns neither contents nor which known blobs there are.
//
// Rules:
//
//   - Bytes that do not hash to the name of their blob are never returned.
//   - A blob that the newest state refers to is not removed, however old it is.
package mirror
