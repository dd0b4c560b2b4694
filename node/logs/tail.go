package logs

// tailPiece is a piece of one of the three texts of a tail.
type tailPiece struct {
	text      int // 0 stdout, 1 stderr, 2 combined.
	truncated bool
	bytes     []byte
}

// tail reads a tailPiece.
func (d *decoder) tail() tailPiece {
	p := tailPiece{text: int(d.byte()), truncated: d.byte() == 1, bytes: d.rest}
	d.bad = d.bad || p.text > 2
	return p
}
