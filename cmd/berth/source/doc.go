// Package source sends a directory of this machine to the cluster as a bundle.
//
// Scan walks the directory and hashes its files, leaving out what .gitignore and
// .berthignore name. It holds names and hashes, never the content. Small files
// share blobs, whose borders follow from the content, so that a second bundle has
// most blobs of the first one: Send sends only those that the cluster lacks. It
// reads them again, and their hashes show whether a file has changed meanwhile.
//
// It prints nothing and knows no flags.
package source
