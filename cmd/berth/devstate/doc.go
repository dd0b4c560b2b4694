// Package devstate reads cluster.json, in which package dev describes a running
// cluster. Clients use it to find the cluster: they need nothing else of dev,
// which starts processes and runs on Linux only.
package devstate
