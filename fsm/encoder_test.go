package fsm

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/store"
	"berth/fsm/storetest"
)

// storedTypes returns the types of everything that replicas encode alike: records, commands,
// results, plans, and the fields of the state that are not records.
func storedTypes() []reflect.Type {
	view := New().View()
	types := []reflect.Type{
		reflect.TypeFor[command.Result](), reflect.TypeFor[compute.Plan](), reflect.TypeOf(&view.meta).Elem(),
	}
	for _, table := range view.stored() {
		put, _ := reflect.TypeOf(table).MethodByName("Put")
		types = append(types, put.Type.In(1).Elem())
	}
	for _, c := range command.All() {
		types = append(types, reflect.TypeOf(c.Command))
	}
	return types
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
				storetest.Filler{Rand: rng, Sparse: i % 5 * 2}.Fill(v.Elem(), deep)
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
