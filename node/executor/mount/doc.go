// Package mount shows the bucket of an organization as a directory to one execution.
//
// It is a process of its own, which the node starts for an attempt. Its FUSE file
// system speaks S3 with this node over a Unix socket, with credentials that the node
// made for the execution. The code gets a clone of the mount and nothing else: neither
// the credentials nor the socket. The process ends when the supervisor of the attempt
// does, and its mount with it. It survives a restart of the node: requests are
// repeated.
//
// A file that is read is fetched in blocks. One that is written is a file on the node's
// disk until it is closed or synced, and is stored then, whole. Files that nobody closed
// are stored when the code has ended. Changes by others show within two seconds, and
// at each open. Directories are prefixes of keys: an empty one exists until the
// execution ends. Keys with an empty segment, such as a/ and a//b, are not seen. There
// are no links, owners or modes. Renaming copies a file within the bucket; a directory
// with files cannot be renamed in one step.
//
// Signals interrupt no reads. Nothing waits for ever: a node that does not answer ends
// requests with EIO, and the supervisor cuts the mount when killed code waits for it. The
// size of what is staged is limited, and so is the memory of the process.
package mount
