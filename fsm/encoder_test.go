package fsm

import (
	"bytes"
	"encoding/binary"
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

	sparse int  // One of so many values stays zero; 0 for none.
	broken bool // Some texts are not UTF-8.
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
		if f.broken && f.IntN(9) == 0 {
			v.SetString("\xff")
			return
		}
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
				filler{rng, i % 5 * 2, false}.fill(v.Elem(), deep)
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
			mustDecodeAlike(t, of, want)
		}
	}
}

// mustDecodeAlike decodes what the codec encoded with it, and as replicas do.
func mustDecodeAlike(t *testing.T, of reflect.Type, text []byte) {
	t.Helper()
	want := reflect.New(of)
	if err := cbor.Unmarshal(text, want.Interface()); err != nil {
		t.Fatalf("%v: %v", of, err)
	}
	got := reflect.New(of)
	if err := store.Decode(text, got.Interface()); err != nil || !reflect.DeepEqual(got.Interface(), want.Interface()) {
		t.Fatalf("%x is decoded as %+v, %v, want %+v", text, got, err, want)
	}
}

// TestSchemasAcceptOnlyCommandsThatDecode encodes random commands, some with text that no
// replica reads. Encode refuses exactly those that do not decode, although it decodes only
// the ones that their schemas do not accept.
func TestSchemasAcceptOnlyCommandsThatDecode(t *testing.T) {
	const deep = 12
	rng := rand.New(rand.NewPCG(6, 18))
	accepted, refused := 0, 0
	for _, r := range commands.rows {
		empty, err := r.decode([]byte{store.MajorMap << 5})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			v := reflect.New(reflect.TypeOf(empty)).Elem()
			filler{rng, i % 5 * 2, i%4 == 0}.fill(v, deep)
			cmd, payload := v.Interface(), store.MustEncode(v.Interface())
			if rng.IntN(3) == 0 {
				payload = spoiled(rng, payload)
			}
			accepts := len(payload) > 0 && r.schema.Size(payload) == len(payload)
			if _, err := r.decode(payload); accepts && err != nil {
				t.Fatalf("%s: accepted, but %v: %x", r.name, err, payload)
			}
			if accepts {
				accepted++
			}
			frame, err := Encode(cmd)
			if err != nil {
				refused++
			} else if c, rest, err := Decode(frame); err != nil || len(rest) > 0 || reflect.TypeOf(c) != v.Type() {
				t.Fatalf("%s: proposed, but %v: %x", r.name, err, frame)
			}
			_, _, decodeErr := commands.decode(frameOf(r, store.MustEncode(cmd)))
			if (err == nil) != (decodeErr == nil) {
				t.Fatalf("%s: %v, but decoding says %v", r.name, err, decodeErr)
			}
		}
	}
	if accepted < 2000 || refused < 100 {
		t.Errorf("%d accepted, %d refused: the test shows little", accepted, refused)
	}
}

// frameOf returns the frame of a payload, however it was made.
func frameOf(r *row, payload []byte) []byte {
	frame := binary.BigEndian.AppendUint32([]byte{r.number, version}, uint32(len(payload)))
	return append(frame, payload...)
}
