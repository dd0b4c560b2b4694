package berth_test

import (
	"encoding/json"
	"testing"

	berth "berth/sdk/go"
)

func TestAmount(t *testing.T) {
	tests := []struct {
		text string
		want berth.Amount
		bad  bool
	}{
		{"0", 0, false},
		{"1", berth.Credit, false},
		{"0.000001", 1, false},
		{"-0.5", -500_000, false},
		{"12.34", 12_340_000, false},
		{"9223372036854.775807", 1<<63 - 1, false},
		{"0.0000001", 0, true},
		{"9223372036854.775808", 0, true},
		{`"1"`, 0, true},
		{"1e3", 0, true},
	}
	for _, tt := range tests {
		var got berth.Amount
		err := json.Unmarshal([]byte(tt.text), &got)
		if (err != nil) != tt.bad || got != tt.want {
			t.Errorf("%s is %d, %v, want %d", tt.text, got, err, tt.want)
		}
		if back, err := json.Marshal(got); !tt.bad && (err != nil || string(back) != tt.text) {
			t.Errorf("%s became %s, %v", tt.text, back, err)
		}
	}
}
