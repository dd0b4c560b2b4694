// Package testsize tells tests how much to do. `make test` proves a change and
// stays within minutes; `make test-long` sets the build tag "long", under which
// histories are longer and the files that carry the tag are compiled too.
//
// A test that only makes sense in its long form belongs in a file NAME_long_test.go
// with the build constraint "long", so that `make test` does not count it as
// skipped. A test that is worth a short form chooses its size with Pick.
//
// Only tests import this package.
package testsize
