//go:build !long

package supervise_test

import "testing"

// beGuest is a stub. Only the guest of the long tests runs this binary as its
// first process.
func beGuest(*testing.M) {}
