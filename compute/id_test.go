package compute_test

import (
	"encoding/json"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"berth/compute"
)

const someID = "0190a6d2-5c3e-7f00-8a1b-0123456789ab"

func TestParseUUID(t *testing.T) {
	tests := []struct {
		name, text, want string
		ok               bool
	}{
		{"lower case", someID, someID, true},
		{"upper case", "0190A6D2-5C3E-7F00-8A1B-0123456789AB", someID, true},
		{"empty", "", "", false},
		{"no hyphens", "0190a6d25c3e7f008a1b0123456789ab", "", false},
		{"braces", "{0190a6d2-5c3e-7f00-8a1b-0123456789a}", "", false},
		{"hyphen elsewhere", "0190a6d-25c3e-7f00-8a1b-0123456789ab", "", false},
		{"one hyphen too many", "0190a6d2-5c3e-7f00-8a1b-01234567-9ab", "", false},
		{"no hexadecimal", "0190a6d2-5c3e-7f00-8a1b-0123456789ag", "", false},
		{"too short", someID[:35], "", false},
		{"too long", someID + "0", "", false},
		{"36 bytes of other letters", "ééééééééééééééé-éé", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := compute.ParseUUID(tt.text)
			if (err == nil) != tt.ok || got.String() != tt.want {
				t.Errorf("got %q, %v; want %q, ok %v", got, err, tt.want, tt.ok)
			}
			if err != nil && !got.IsZero() {
				t.Errorf("an error comes with the UUID %s", got)
			}
		})
	}
}

func TestParseIDsByKind(t *testing.T) {
	e, err := compute.ParseExecutionID(someID)
	if err != nil || e.String() != someID {
		t.Errorf("execution: %v, %v", e, err)
	}
	n, err := compute.ParseNodeID(someID)
	if err != nil || n.String() != someID {
		t.Errorf("node: %v, %v", n, err)
	}
	k, err := compute.ParseKeyID(someID)
	if err != nil || k.String() != someID {
		t.Errorf("key: %v, %v", k, err)
	}
	u, err := compute.ParseUserID(someID)
	if err != nil || u.String() != someID {
		t.Errorf("user: %v, %v", u, err)
	}
	if _, err := compute.ParseNodeID("n1"); err == nil {
		t.Error("n1 is taken for a node's id")
	}
}

// TestIDsTravel checks both encodings: text in JSON, 16 bytes in CBOR, and
// nothing for the zero id in either.
func TestIDsTravel(t *testing.T) {
	e, err := compute.ParseExecutionID(someID)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []compute.ExecutionID{e, {}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := compute.ExecutionID{UUID: compute.UUID{9}}
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("JSON %s came back as %v, %v", text, got, err)
		}
		data, err := cbor.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 17 {
			t.Errorf("%v takes %d bytes in CBOR", want, len(data))
		}
		got = compute.ExecutionID{UUID: compute.UUID{9}}
		if err := cbor.Unmarshal(data, &got); err != nil || got != want {
			t.Errorf("CBOR %x came back as %v, %v", data, got, err)
		}
	}
	var u compute.UUID
	if u.UnmarshalBinary([]byte{1, 2, 3}) == nil || u.UnmarshalText([]byte("x")) == nil {
		t.Error("half an id is accepted")
	}
}
