// Package composefile reads Compose files, and says which of their keys a cluster
// that several organizations share can allow. Docker Compose's own library checks the
// file; an allow list then writes another file that has nothing but allowed keys. A
// refused key is a fault with its line and column.
//
// Refused are keys that reach beyond the execution: files and devices of the machine,
// other namespaces, privileges, published ports, builds, and files of the client.
//
// It is pure: it opens no file, reads no variable of the process and knows no engine.
package composefile
