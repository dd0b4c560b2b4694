// Package outputs copies what code left in the directory outputs of its work
// directory to a file of the attempt, once all its processes have ended.
//
// The supervisor calls it as root on files that untrusted code has made. So it
// opens everything beneath the directory and follows no link, enters no other
// mount, and copies regular files only. Its limits hold for directories of any
// size: it reads names in pieces and stops at the limit. The summary names the files
// that it leaves out.
//
// It stores nothing: the node reads the file and puts it into blobs. It imports
// only light packages, because supervisors load it.
package outputs
