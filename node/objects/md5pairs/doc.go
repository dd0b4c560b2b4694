// Package md5pairs computes the MD5s of two streams by turns. MD5 is one chain of dependent
// steps, so that a core which hashes one stream waits most of the time: two take hardly
// longer. A single stream, and processors other than amd64, use crypto/md5.
package md5pairs
