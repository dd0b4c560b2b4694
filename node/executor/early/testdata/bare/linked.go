//go:build cgo

package main

import "C" // Linked as berth is, which calls NVML: the dynamic linker's time is not ours.
