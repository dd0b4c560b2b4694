package node

import (
	"io"
	"sync"
)

// Sizes of the pieces in which connections are copied.
const (
	smallPiece = 2 << 10 // Events of streams, and most requests, are smaller.
	largePiece = 32 << 10
)

// largePieces has buffers for connections that have much to send. The others hold a small one
// each, however long they wait.
var largePieces = sync.Pool{New: func() any { //nolint:gochecknoglobals // Memory that all connections share.
	buf := make([]byte, largePiece)
	return &buf
}}

// copyPieces copies until from ends or to fails.
func copyPieces(to io.Writer, from io.Reader) {
	small := make([]byte, smallPiece)
	large, buf := (*[]byte)(nil), small
	defer func() {
		if large != nil {
			largePieces.Put(large)
		}
	}()
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, failed := to.Write(buf[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
		switch much := n >= smallPiece; {
		case much && large == nil:
			large = largePieces.Get().(*[]byte)
			buf = *large
		case !much && large != nil:
			largePieces.Put(large)
			large, buf = nil, small
		}
	}
}
