package file

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// A small text file contains its checksum, as a JSON member or after a #, so
// that other programs can read the file too.
const (
	sealMark = `"crc32c": "`

	// Unsealed is the value of the member "crc32c" of a JSON text where
	// WriteSealed puts the checksum.
	Unsealed = "00000000"
)

// ErrDamaged means that a file's checksum is wrong.
var ErrDamaged = errors.New("the file is damaged: its checksum is wrong")

// WriteSealed writes text as Write does, with its checksum. The checksum
// replaces Unsealed if text contains it, and is otherwise in a last line that
// begins with #.
func WriteSealed(path string, text []byte) error {
	text = bytes.Clone(text)
	at := sealOf(text)
	if at < 0 {
		text = fmt.Appendf(text, "# %s%s\"\n", sealMark, Unsealed)
		at = sealOf(text)
	}
	copy(text[at:], sum(text))
	return Write(path, text)
}

// ReadSealed reads a file that WriteSealed wrote. The error is ErrDamaged if
// the checksum is wrong. A file without a checksum is returned unchanged.
func ReadSealed(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	at := sealOf(text)
	if at < 0 {
		return text, nil
	}
	plain := bytes.Clone(text)
	copy(plain[at:], Unsealed)
	if !bytes.Equal(sum(plain), text[at:at+len(Unsealed)]) {
		return nil, fmt.Errorf("%s: %w", path, ErrDamaged)
	}
	return text, nil
}

// sealOf returns the offset of the checksum in text, -1 for none.
func sealOf(text []byte) int {
	at := bytes.LastIndex(text, []byte(sealMark))
	if at < 0 || len(text) < at+len(sealMark)+len(Unsealed)+1 {
		return -1
	}
	return at + len(sealMark)
}

// sum returns the checksum of a text with Unsealed in its place.
func sum(text []byte) []byte {
	return fmt.Appendf(nil, "%08x", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
}
