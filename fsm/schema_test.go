package fsm

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/ledger"
	"berth/fsm/partial"
	"berth/fsm/store"
	"berth/fsm/storetest"
)

// fillIn sets v to values that records may have, many of them zero.
func fillIn(rng *rand.Rand, v reflect.Value) {
	if rng.IntN(3) == 0 && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("cbor") != "-" {
				fillIn(rng, v.Field(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(rng.Uint64N(256))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillIn(rng, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rng.IntN(30), 30))
		for i := range v.Len() {
			fillIn(rng, v.Index(i))
		}
	case reflect.String:
		v.SetString(strings.Repeat("é", rng.IntN(200)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt((rng.Int64() - rng.Int64()) >> rng.IntN(64))
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(rng.Uint64() >> (64 - v.Type().Bits() + rng.IntN(v.Type().Bits())))
	default:
		panic("records have no " + v.Type().String())
	}
}

// testSchema checks that a schema accepts the encoder's output, and nothing that
// the decoder refuses or that the encoder would encode differently.
func testSchema[V any](t *testing.T, f *store.Schema) {
	rng := rand.New(rand.NewPCG(7, 7))
	kept := 0
	for range 1000 {
		v := new(V)
		fillIn(rng, reflect.ValueOf(v).Elem())
		record := store.MustEncode(v)
		if f.Size(record) != len(record) {
			t.Fatalf("%+v is not accepted: %x", v, record)
		}
		for range 60 {
			record := storetest.Spoiled(rng, record)
			if f.Size(record) != len(record) {
				continue
			}
			kept++
			again := new(V)
			if err := store.Decode(record, again); err != nil {
				t.Fatalf("accepted, but %v: %x", err, record)
			}
			if back := store.MustEncode(again); !bytes.Equal(back, record) {
				t.Fatalf("accepted, but %x comes back as %x", record, back)
			}
		}
	}
	if kept < 1000 {
		t.Errorf("only %d changed records were accepted: the test shows little", kept)
	}
}

func TestSchemasAcceptRecords(t *testing.T) {
	t.Run("execution", func(t *testing.T) { testSchema[compute.Execution](t, store.SchemaOf[compute.Execution]()) })
	t.Run("attempt", func(t *testing.T) { testSchema[compute.Attempt](t, store.SchemaOf[compute.Attempt]()) })
	t.Run("op", func(t *testing.T) { testSchema[op](t, opSchema) })
	t.Run("line", func(t *testing.T) { testSchema[compute.LedgerEntry](t, ledger.Schema) })
}

// TestRestoreRefusesUndecodableRecords checks that the restore finds a final
// record that matches its hashes but cannot be decoded, before its first reader
// does.
func TestRestoreRefusesUndecodableRecords(t *testing.T) {
	id := compute.ExecutionID{UUID: compute.UUID{11}}
	for name, change := range map[string]func(record []byte) []byte{
		"a field of the request that nobody knows": func(record []byte) []byte {
			f, _ := store.FieldsOf(record)
			for key, item, ok := f.Next(); ok; key, item, ok = f.Next() {
				if key != 11 {
					continue
				}
				inner, n := store.FieldsOf(item)
				request := append(append(store.AppendHead(nil, store.MajorMap, n+1), inner.Rest...), 20, 1)
				at := len(record) - len(f.Rest) - len(item)
				return slices.Concat(record[:at], request, f.Rest)
			}
			return nil
		},
		"no UTF-8": func(record []byte) []byte {
			return bytes.Replace(record, []byte("\x62t4"), []byte("\x62\xff\xfe"), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := longHistory(t)
			e, _ := s.view.executions.Get(id)
			s.view.executions.Drop(id)
			e.Profile = "t4"
			record := change(store.MustEncode(e))
			if err := store.Decode(record, new(compute.Execution)); err == nil {
				t.Fatal("it can be decoded")
			}
			sum, pages := store.Sum{}, s.view.executions.Builder()
			sum.Add(sha256.Sum256(partial.AppendLean(nil, record)))
			key := executionBytes(id)
			pages.Add(key, s.view.executions.Pack(nil, key, record))
			if made, _ := pages.Pages(); !s.view.executions.Load(made, &sum) {
				t.Fatal("the record has no place")
			}
			if _, err := restored(t, s); err == nil || !strings.Contains(err.Error(), "decode *compute.Execution") {
				t.Errorf("restored with %v", err)
			}
		})
	}
}

func TestRecordsPackSmall(t *testing.T) {
	p := store.NewPacker(2, 3, 4, 10, 11)
	execution := func(n byte) []byte {
		e := compute.Execution{
			ID: compute.ExecutionID{UUID: compute.UUID{n, 1}}, Org: compute.OrgID{UUID: compute.UUID{2}},
			Status: compute.StatusCompleted, Profile: "h100", CreatedAt: 1_790_000_000_000 + compute.Instant(n),
			FinishedAt: 1_790_000_001_000 + 3*compute.Instant(n), SubmitIndex: 1_000_000 + uint64(n), Ran: true,
		}
		return store.MustEncode(&e)
	}
	first := execution(1)
	p.Pack(nil, first[4:20], first)
	for n := byte(2); n < 100; n++ {
		record := execution(n)
		id := executionBytes(store.MustDecode[compute.Execution](record).ID)
		packed := p.Pack(nil, id, record)
		if len(packed) > 16 || len(record) < 60 {
			t.Fatalf("a record of %d bytes takes %d", len(record), len(packed))
		}
	}
}
