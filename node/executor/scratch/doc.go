// Package scratch makes the disk space of executions: ext4 file systems in
// sparse files. Each has a fixed size, so that one execution cannot fill the
// machine's disk, and a full file system is an I/O error for its execution
// alone.
//
// Format makes the file, and Mount mounts it through a loop device. The mount is
// detached: it has no place in any directory and appears in no list of mounts.
// It is a descriptor, and ends with the last descriptor and the last sandbox
// that has it. The kernel then frees the loop device, and the file if it was
// removed. A process that dies therefore leaves nothing behind but a file in the
// directory of a Pool, which the next Pool of that directory removes.
//
// A Pool keeps a few empty file systems ready, because a start should not wait
// for one. The file systems have no journal: their content ends with the
// execution, and a machine that lost power starts with new ones.
//
// It is not for file systems that outlive their execution, with one exception:
// prepared environments, which are written once, sealed and mounted read-only.
package scratch
