//go:build !long

package supervise_test

import "testing"

// beGuest is for the guest of the long tests, which alone executes this binary
// as the first process.
func beGuest(*testing.M) {}
