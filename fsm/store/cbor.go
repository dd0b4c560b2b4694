package store

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Limits of decoded records.
const (
	maxNesting  = 8
	maxElements = 16 << 10 // Elements of one array or map.
)

// modes are the CBOR options of the package.
type modes struct {
	enc    cbor.EncMode
	dec    cbor.DecMode // For commands and records: an unknown field is an error.
	answer cbor.DecMode // For results, to which newer nodes may add fields.
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

// MustEncode returns the encoding of a record. Records are plain data, so it
// cannot fail.
func MustEncode(record any) []byte {
	data, err := Encode(record)
	if err != nil {
		panic(fmt.Errorf("encode %T: %w", record, err))
	}
	return data
}

// MustDecode returns the record that MustEncode encoded.
func MustDecode[V any](data []byte) *V {
	v := new(V)
	if err := codec.dec.Unmarshal(data, v); err != nil {
		panic(fmt.Errorf("decode %T: %w", v, err))
	}
	return v
}

// Encode returns the deterministic encoding of a value.
func Encode(value any) ([]byte, error) { return codec.enc.Marshal(value) }

// Decode sets v to the value that data encodes. A field that V does not have is
// an error.
func Decode[V any](data []byte, v *V) error { return codec.dec.Unmarshal(data, v) }

// DecodeKnown is Decode, except that it ignores fields that V does not have.
func DecodeKnown[V any](data []byte, v *V) error { return codec.answer.Unmarshal(data, v) }

// DecodeRecord sets v to the record that data is. V itself does not escape to the heap.
func DecodeRecord[V any](data []byte, v *V) error {
	whole := new(V)
	if err := codec.dec.Unmarshal(data, whole); err != nil {
		return fmt.Errorf("decode %T: %w", whole, err)
	}
	*v = *whole
	return nil
}
