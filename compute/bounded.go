package compute

import "io"

// Bounded returns a reader of at most limit bytes, whose error is err where body has more.
func Bounded(body io.Reader, limit int64, err error) io.Reader {
	return &bounded{body, max(limit, 0), err}
}

type bounded struct {
	body io.Reader
	left int64
	err  error
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.err
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.err
	}
	return n, err
}
