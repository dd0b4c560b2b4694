// Package wheeltest writes wheels of Python packages, for tests of what installs
// them. A wheel may have a file of any size, which takes no memory to write.
//
// It is not for programs: only tests import it.
package wheeltest
