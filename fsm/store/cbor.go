package store

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Limits of what is decoded.
const (
	maxNesting  = 8
	maxElements = 16 << 10 // Of one array or map.
)

// modes is how the package speaks CBOR.
type modes struct {
	enc    cbor.EncMode
	dec    cbor.DecMode // For commands and records: what is unknown is an error.
	answer cbor.DecMode // For results, which newer nodes may say more in.
}

// codec is built once and never changes: building it costs more than using
// it, and every command and record needs it.
var codec = newModes() //nolint:gochecknoglobals // Immutable.

func newModes() modes {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	options := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:  maxNesting,
		MaxArrayElements: maxElements,
		MaxMapPairs:      maxElements,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		Inf:              cbor.InfDecodeForbidden,
		NaN:              cbor.NaNDecodeForbidden,
	}
	answer, err := options.DecMode()
	if err != nil {
		panic(err)
	}
	options.ExtraReturnErrors = cbor.ExtraDecErrorUnknownField
	dec, err := options.DecMode()
	if err != nil {
		panic(err)
	}
	return modes{enc, dec, answer}
}

// mustEncode returns the encoding of a record. Records are plain data, so it
// cannot fail.
func MustEncode(record any) []byte {
	data, err := Encode(record)
	if err != nil {
		panic(fmt.Errorf("encode %T: %w", record, err))
	}
	return data
}

// mustDecode returns the record that mustEncode encoded.
func MustDecode[V any](data []byte) *V {
	v := new(V)
	if err := codec.dec.Unmarshal(data, v); err != nil {
		panic(fmt.Errorf("decode %T: %w", v, err))
	}
	return v
}

// encode returns the deterministic encoding of a value.
func Encode(value any) ([]byte, error) { return codec.enc.Marshal(value) }

// decode sets v to the value that data encodes. A field that V does not have is
// an error.
func Decode[V any](data []byte, v *V) error { return codec.dec.Unmarshal(data, v) }

// decodeKnown is decode, except that fields that V does not have are ignored.
func DecodeKnown[V any](data []byte, v *V) error { return codec.answer.Unmarshal(data, v) }

// decodeRecord sets v to the record that data is. V itself does not come to the heap by it.
func DecodeRecord[V any](data []byte, v *V) error {
	whole := new(V)
	if err := codec.dec.Unmarshal(data, whole); err != nil {
		return fmt.Errorf("decode %T: %w", whole, err)
	}
	*v = *whole
	return nil
}
