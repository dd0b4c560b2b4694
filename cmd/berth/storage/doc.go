// Package storage has the commands of berth that move files to and from the storage of
// an organization.
//
// A stored file is named by its key, which is no path: what a command writes on this
// machine stays below the directory that the user names.
package storage
