//go:build long

package testsize

// Long reports whether tests run in their long form.
const Long = true
