package file

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// A small text file carries its checksum within, as JSON member or behind a #,
// so that programs which know nothing of it read it too.
const (
	sealMark = `"crc32c": "`

	// Unsealed is what a JSON text has as its member "crc32c" where
	// WriteSealed puts the checksum.
	Unsealed = "00000000"
)

// ErrDamaged is returned for a file that is not what was written.
var ErrDamaged = errors.New("the file is damaged: its checksum is wrong")

// WriteSealed writes text as Write does, with its checksum: in the place of
// Unsealed when it has one, else in a last line that begins with #.
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

// ReadSealed reads what WriteSealed wrote. The error is ErrDamaged when the
// checksum is wrong; a file without one is taken as it is.
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

// sealOf returns where the checksum is in text, -1 for nowhere.
func sealOf(text []byte) int {
	at := bytes.LastIndex(text, []byte(sealMark))
	if at < 0 || len(text) < at+len(sealMark)+len(Unsealed)+1 {
		return -1
	}
	return at + len(sealMark)
}

// sum returns the checksum of a text that has Unsealed in its place.
func sum(text []byte) []byte {
	return fmt.Appendf(nil, "%08x", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
}
