//go:build !linux || !cgo

package gpu

// openNVML returns a source without devices: NVML is called through cgo, and
// this binary was built without it.
func openNVML(c Config) Source {
	c.Logger.Warn("no gpu driver support in this binary", "err", "built without cgo")
	return noSource{}
}
