package command

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"berth/fsm/store"
	"berth/fsm/storetest"
)

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
			storetest.Filler{Rand: rng, Sparse: i % 5 * 2, Broken: i%4 == 0}.Fill(v, deep)
			cmd, payload := v.Interface(), store.MustEncode(v.Interface())
			if rng.IntN(3) == 0 {
				payload = storetest.Spoiled(rng, payload)
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
