package testsize

// Pick returns short in `make test` and long in `make test-long`.
func Pick[T any](short, long T) T {
	if Long {
		return long
	}
	return short
}
