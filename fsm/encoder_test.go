package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"berth/compute"
	"berth/fsm/store"
)

// storedTypes returns the types of everything that replicas encode alike: records, commands,
// results, plans, and the fields of the state that are not records.
func storedTypes() []reflect.Type {
	view := New().View()
	types := []reflect.Type{
		reflect.TypeFor[Result](), reflect.TypeFor[compute.Plan](), reflect.TypeOf(&view.meta).Elem(),
	}
	for _, table := range view.stored() {
		put, _ := reflect.TypeOf(table).MethodByName("Put")
		types = append(types, put.Type.In(1).Elem())
	}
	for _, r := range commands.rows {
		empty, err := r.decode([]byte{store.MajorMap << 5})
		if err != nil {
			panic(err)
		}
		types = append(types, reflect.TypeOf(empty))
	}
	return types
}

// filler sets values at random.
type filler struct {
	*rand.Rand

	sparse int // One of so many values stays zero; 0 for none.
}

// fill sets v. It leaves out what is not encoded.
func (f filler) fill(v reflect.Value, depth int) {
	if f.sparse > 0 && f.IntN(f.sparse) == 0 || depth == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("cbor") != "-" && v.Field(i).CanSet() {
				f.fill(v.Field(i), depth-1)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), depth-1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth-1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), [...]int{0, 1, 3, 30}[f.IntN(4)], 30))
		for i := range v.Len() {
			f.fill(v.Index(i), depth-1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth-1)
			f.fill(value, depth-1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString([...]string{"", "a", "é", strings.Repeat("x", 23), strings.Repeat("x", 24), strings.Repeat("é", 300)}[f.IntN(6)])
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

// TestEncodingNeverChanges encodes random values of every type that replicas encode alike.
// The encoding is that of the codec which all versions so far used: replicas of two versions
// would diverge at one different byte.
func TestEncodingNeverChanges(t *testing.T) {
	codec, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	const deep = 12
	rng := rand.New(rand.NewPCG(5, 18))
	for _, of := range storedTypes() {
		for i := range 150 {
			v := reflect.New(of)
			if i > 0 {
				filler{rng, i % 5 * 2}.fill(v.Elem(), deep)
			}
			want, err := codec.Marshal(v.Interface())
			if err != nil {
				t.Fatalf("%v: %v", of, err)
			}
			for _, value := range []any{v.Interface(), v.Elem().Interface()} {
				if got, err := store.Encode(value); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%T %+v is encoded as %x, %v, want %x", value, value, got, err, want)
				}
			}
		}
	}
}
