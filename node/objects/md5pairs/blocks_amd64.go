package md5pairs

// paired reports whether there is a function blocks.
const paired = true

// blocks adds count blocks, one or more, of two streams to their states.
//
//go:noescape
func blocks(state *[2][4]uint32, data *[2]*byte, sines *[64]uint32, count int)
