package store

import (
	"bytes"
	"crypto/sha256"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/fxamacker/cbor/v2"
)

// UID is an identifier as in package compute.
type UID [16]byte

func (u UID) MarshalBinary() ([]byte, error) {
	if u == (UID{}) {
		return nil, nil
	}
	return u[:], nil
}

// wrapped is an identifier of one kind.
type wrapped struct{ UID }

// odd has the form of an identifier and encodes differently.
type odd [16]byte

func (odd) MarshalBinary() ([]byte, error) { return []byte{1}, nil }

// late is a number that decides whether it is zero.
type late int

func (l late) IsZero() bool { return l == 7 }

// letter is a byte with a name.
type letter uint8

type sparse struct {
	A int    `cbor:"1,keyasint,omitempty"`
	B []byte `cbor:"2,keyasint,omitempty"`
}

type node struct {
	Next *node `cbor:"1,keyasint,omitempty"`
	ID   UID   `cbor:"2,keyasint"`
}

// every has a field of each kind with each option.
type every struct {
	Left   any      `cbor:"-"`
	Bare   UID      `cbor:"300,keyasint"`
	Omit   UID      `cbor:"1,keyasint,omitempty"`
	Text   string   `cbor:"2,keyasint"`
	Text2  string   `cbor:"3,keyasint,omitempty"`
	Bytes  []byte   `cbor:"4,keyasint"`
	Bytes2 []byte   `cbor:"5,keyasint,omitempty"`
	Named  []letter `cbor:"6,keyasint"`
	Hash   [32]byte `cbor:"7,keyasint"`
	Hash2  [32]byte `cbor:"8,keyasint,omitempty"`
	Hash3  [32]byte `cbor:"9,keyasint,omitzero"`
	List   []int16  `cbor:"10,keyasint"`
	List2  []sparse `cbor:"11,keyasint,omitempty"`
	List3  []sparse `cbor:"12,keyasint,omitzero"`
	Array  [3]int   `cbor:"13,keyasint,omitempty"`
	Array2 [3]int   `cbor:"14,keyasint,omitzero"`
	None   [0]int   `cbor:"15,keyasint"`
	None2  [0]byte  `cbor:"16,keyasint,omitempty"`
	Inner  sparse   `cbor:"17,keyasint"`
	Inner2 sparse   `cbor:"18,keyasint,omitempty"`
	Inner3 sparse   `cbor:"19,keyasint,omitzero"`
	Point  *int     `cbor:"20,keyasint"`
	Point2 *sparse  `cbor:"21,keyasint,omitempty"`
	Point3 **bool   `cbor:"22,keyasint,omitempty"`
	Chain  node     `cbor:"23,keyasint,omitempty"`
	Int    int64    `cbor:"24,keyasint"`
	Uint   uint64   `cbor:"25,keyasint,omitempty"`
	Small  int8     `cbor:"26,keyasint,omitzero"`
	Yes    bool     `cbor:"27,keyasint"`
	Yes2   bool     `cbor:"28,keyasint,omitempty"`
	Late   late     `cbor:"29,keyasint,omitempty"`

	Array3 [2]padded `cbor:"30,keyasint,omitzero"`
	End    struct{}  `cbor:"31,keyasint"`
}

// padded has bytes in memory that belong to no field.
type padded struct {
	Yes  bool   `cbor:"1,keyasint"`
	Wide uint64 `cbor:"2,keyasint"`
	Last uint16 `cbor:"3,keyasint,omitempty"`
}

// fullEvery returns a value all of whose fields are set.
func fullEvery() every {
	yes, number := true, 5
	inner, pointer := sparse{1, []byte{2}}, &yes
	return every{
		Bare: UID{1}, Omit: UID{2}, Text: "a", Text2: "é", Bytes: []byte{1}, Bytes2: make([]byte, 300), Named: []letter{1, 200},
		Hash: [32]byte{1}, Hash2: [32]byte{2}, Hash3: [32]byte{3}, List: []int16{-1, 300}, List2: []sparse{inner, {}}, List3: []sparse{inner},
		Array: [3]int{1, 2, 3}, Array2: [3]int{-1}, Inner: inner, Inner2: inner, Inner3: inner,
		Point: &number, Point2: &sparse{}, Point3: &pointer, Chain: node{Next: &node{}}, Int: math.MinInt64, Uint: math.MaxUint64,
		Small: -128, Yes: true, Yes2: true, Late: 7, Array3: [2]padded{1: {Yes: true, Wide: 300, Last: 5}},
	}
}

// TestEncoderAgreesWithCodec encodes values of each kind with both, and refuses types that
// the encoder does not cover.
func TestEncoderAgreesWithCodec(t *testing.T) {
	full := fullEvery()
	empty := every{Bytes: []byte{}, Bytes2: []byte{}, Named: []letter{}, List: []int16{}, List2: []sparse{}, List3: []sparse{}}
	nothing := (*every)(nil)
	values := []any{
		full, &full,
		every{},
		&every{}, empty, &empty, nothing, &nothing, 0, -1, 23, 24, 255, 256, 1 << 16, 1 << 32, int64(math.MaxInt64),
		uint64(math.MaxUint64), "", true, false, []byte(nil),
		[]byte{},
		[]string(nil),
		[]string{},
		[2]bool{true},
		UID{},
		UID{1},
		&UID{1},
		struct{}{},
		node{Next: &node{Next: &node{ID: UID{1}}}},
		wrapped{},
		wrapped{UID{4}},
		&wrapped{UID{5}}, nil,
		map[string]int{"bb": 1, "a": 2},
	}
	for _, value := range values {
		want, err := codec.enc.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Encode(value)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%T %+v is %x, %v, want %x", value, value, got, err, want)
		}
		framed, err := EncodeBehind(6, value)
		if err != nil || !bytes.Equal(framed[6:], want) || !bytes.Equal(framed[:6], make([]byte, 6)) {
			t.Errorf("behind a header, %T is %x, %v", value, framed, err)
		}
		if hashOf(value) != sha256.Sum256(want) {
			t.Errorf("%T %+v has another hash", value, value)
		}
	}
	if encoderOf(reflect.TypeFor[every]()) == nil || encoderOf(reflect.TypeFor[wrapped]()) == nil {
		t.Error("a record is left to the codec")
	}
}

func TestEncoderRefuses(t *testing.T) {
	type embedded struct{ sparse }
	type partly struct {
		A    int `cbor:"1,keyasint"`
		Left int `cbor:"-"`
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[map[string]int](), reflect.TypeFor[float64](), reflect.TypeFor[any](), reflect.TypeFor[time.Time](),
		reflect.TypeFor[odd](), reflect.TypeFor[cbor.RawMessage](), reflect.TypeFor[cbor.Tag](), reflect.TypeFor[cbor.ByteString](),
		reflect.TypeFor[uintptr](), reflect.TypeFor[chan int](), reflect.TypeFor[embedded](), reflect.TypeFor[[]*map[int]int](),
		reflect.TypeFor[struct{ A int }](),
		reflect.TypeFor[struct {
			A int `cbor:"a"`
		}](),
		reflect.TypeFor[struct {
			A int `cbor:"1,keyasint"`
			B int `cbor:"01,keyasint"`
		}](),
		reflect.TypeFor[struct {
			A int `cbor:"-1,keyasint"`
		}](),
		reflect.TypeFor[struct {
			A late `cbor:"1,keyasint,omitzero"`
		}](),
		// Whether they are zero depends on what is not encoded.
		reflect.TypeFor[struct {
			A partly `cbor:"1,keyasint,omitzero"`
		}](),
		reflect.TypeFor[struct {
			A [2]partly `cbor:"1,keyasint,omitzero"`
		}](),
		reflect.TypeFor[struct {
			_ struct{} `cbor:",toarray"`
			A int      `cbor:"1,keyasint"`
		}](),
	} {
		if encoderOf(of) != nil {
			t.Errorf("%v has an encoder", of)
		}
	}
}

// TestDecoderAgreesWithCodec decodes encodings of each kind, whole and changed at random, as
// the codec does: the same value, or an error.
func TestDecoderAgreesWithCodec(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 18))
	empty := every{Bytes: []byte{}, Bytes2: []byte{}, Named: []letter{}, List: []int16{}, List2: []sparse{}, List3: []sparse{}}
	deep := &node{}
	for range 2 * maxNesting {
		deep = &node{Next: deep}
	}
	var texts [][]byte
	for _, value := range []any{fullEvery(), every{}, empty, node{}, deep, node{Next: &node{Next: &node{ID: UID{1}}}}, sparse{1, []byte{2}}} {
		texts = append(texts, MustEncode(value))
	}
	planned, left := 0, 0
	for i := range 60_000 {
		text := bytes.Clone(texts[i%len(texts)])
		for range min(i/len(texts), 1+rng.IntN(3)) { // The first are whole.
			switch at := rng.IntN(len(text)); rng.IntN(4) {
			case 0:
				text = slices.Delete(text, at, at+1)
			case 1:
				text = slices.Insert(text, at, byte(rng.Uint32()))
			case 2:
				text[at] ^= 1 << rng.IntN(8)
			default:
				text[at] = [...]byte{0, 0x17, 0x18, 0x1b, 0x20, 0x3b, 0x40, 0x50, 0x60, 0x80, 0x9f, 0xa0, 0xf4, 0xf6, 0xf7, 0xff}[rng.IntN(16)]
			}
			if len(text) == 0 {
				text = []byte{0}
			}
		}
		if agreesWithCodec[every](t, text) {
			planned++
		} else {
			left++
		}
		agreesWithCodec[node](t, text)
		agreesWithCodec[sparse](t, text)
	}
	if planned < 3000 || left < 3000 {
		t.Errorf("%d were decoded by the plan and %d not: the test shows little", planned, left)
	}
}

// agreesWithCodec compares how a text is decoded, and reports whether the plan of the type
// decodes it.
func agreesWithCodec[V any](t *testing.T, text []byte) bool {
	t.Helper()
	var want, got, again V
	wantErr := codec.dec.Unmarshal(text, &want)
	before := bytes.Clone(text)
	err := Decode(text, &got)
	if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%x is %+v, %v, want %+v, %v", text, got, err, want, wantErr)
	}
	rest, ok := encoderOf(reflect.TypeFor[V]()).decode(text, unsafe.Pointer(&again), maxPlanned)
	ok = ok && len(rest) == 0
	clear(text)
	if ok && !reflect.DeepEqual(again, want) {
		t.Fatalf("%T of %x changes with the text it was decoded from", want, before)
	}
	copy(text, before)
	return ok
}

// TestValuesAreReadWhereTheyLie encodes values of each size and form: an interface has a pointer
// itself, and points at everything else.
func TestValuesAreReadWhereTheyLie(t *testing.T) {
	type behind struct {
		Of *node `cbor:"1,keyasint"`
	}
	type small struct {
		N uint8 `cbor:"1,keyasint"`
	}
	type two struct {
		Of   *node `cbor:"1,keyasint"`
		Name string
	}
	n := &node{Next: &node{ID: UID{2}}, ID: UID{1}}
	for _, value := range []any{behind{n}, behind{}, small{7}, two{Of: n, Name: "a"}, *n, wrapped{UID{3}}, uint64(9), "text", every{Text: "b"}, sparse{}} {
		pointer := reflect.New(reflect.TypeOf(value))
		pointer.Elem().Set(reflect.ValueOf(value))
		got, err := Encode(value)
		want, wantErr := codec.enc.Marshal(pointer.Interface())
		if err != nil || wantErr != nil || !bytes.Equal(got, want) {
			t.Errorf("%T encodes as %x (%v), want %x (%v)", value, got, err, want, wantErr)
		}
	}
}
