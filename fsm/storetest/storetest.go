// Package storetest makes values and encodings for tests: random values of any type that
// is encoded, and damaged encodings of them. It is for tests only, and knows no record and
// no command.
package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
)

// Filler sets values at random.
type Filler struct {
	*rand.Rand

	Sparse int  // One of so many values stays zero; 0 for none.
	Broken bool // Some texts are not UTF-8.
}

// Fill sets v. It leaves out what is not encoded.
func (f Filler) Fill(v reflect.Value, depth int) {
	if f.Sparse > 0 && f.IntN(f.Sparse) == 0 || depth == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("cbor") != "-" && v.Field(i).CanSet() {
				f.Fill(v.Field(i), depth-1)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			f.Fill(v.Index(i), depth-1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.Fill(v.Elem(), depth-1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), [...]int{0, 1, 3, 30}[f.IntN(4)], 30))
		for i := range v.Len() {
			f.Fill(v.Index(i), depth-1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.Fill(key, depth-1)
			f.Fill(value, depth-1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		if f.Broken && f.IntN(9) == 0 {
			v.SetString("\xff")
			return
		}
		v.SetString([...]string{
			"", "a", "é", strings.Repeat("x", 23), strings.Repeat("x", 24), strings.Repeat("é", 300),
		}[f.IntN(6)])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		most := int64(1)<<(v.Type().Bits()-1) - 1
		v.SetInt([...]int64{0, 1, -1, 23, 24, -24, -25, most, -most, -most - 1, f.Int64() >> f.IntN(64) & most}[f.IntN(11)])
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		most := ^uint64(0) >> (64 - v.Type().Bits())
		v.SetUint([...]uint64{0, 1, 23, 24, 255, most, f.Uint64() >> f.IntN(64) & most}[f.IntN(7)])
	default:
		panic(fmt.Sprintf("nothing encoded is a %s", v.Type()))
	}
}

// Spoiled returns record with a small change somewhere.
func Spoiled(rng *rand.Rand, record []byte) []byte {
	out, at := bytes.Clone(record), rng.IntN(len(record))
	switch rng.IntN(4) {
	case 0:
		out[at] ^= 1 << rng.IntN(8)
	case 1:
		out[at] = byte(rng.Uint32())
	case 2:
		return slices.Delete(out, at, min(at+1+rng.IntN(3), len(out)))
	case 3:
		return slices.Insert(out, at, []byte{byte(rng.Uint32()), byte(rng.Uint32())}[:1+rng.IntN(2)]...)
	}
	return out
}
