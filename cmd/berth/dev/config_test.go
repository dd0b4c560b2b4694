package dev_test

import (
	"maps"
	"strings"
	"testing"

	"berth/cmd/berth/dev"
)

func TestParseGPUs(t *testing.T) {
	tests := []struct {
		name  string
		spec  string
		nodes int
		want  map[string]string
		err   string // Part of it; "" for none.
	}{
		{"default", "", 3, map[string]string{"n1": "h100:2,l40s:4", "n2": "a100:4", "n3": "t4:4"}, ""},
		{"default on fewer nodes", "", 1, map[string]string{"n1": "h100:2,l40s:4"}, ""},
		{"default on more nodes", "", 5, map[string]string{"n1": "h100:2,l40s:4", "n2": "a100:4", "n3": "t4:4"}, ""},
		{"one node", "n2=b200", 2, map[string]string{"n2": "b200"}, ""},
		{"spaces and empty parts", " n1 = h200:1 , t4 ;; n2=l4:8;", 2, map[string]string{"n1": "h200:1 , t4", "n2": "l4:8"}, ""},
		{"no node", "h100:2", 3, nil, `"h100:2" is not NODE=TYPE:COUNT`},
		{"unknown node", "n4=h100", 3, nil, `there is no node "n4", only n1, n2, n3`},
		{"node twice", "n1=h100;n1=t4", 3, nil, "node n1 is named twice"},
		{"unknown type", "n1=h101", 3, nil, `unknown GPU type "h101", valid ones are such as t4, l4`},
		{"no count", "n1=h100:", 3, nil, "is not a number of GPUs"},
		{"count of none", "n1=h100:0", 3, nil, "is not a number of GPUs"},
		{"too many", "n1=h100:1000", 3, nil, "is not a number of GPUs"},
		{"no devices", "n1=", 3, nil, "no GPU named"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := dev.ParseGPUs(tt.spec, tt.nodes)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("ParseGPUs(%q) = %v, %v, want an error with %q", tt.spec, got, err, tt.err)
				}
				return
			}
			if err != nil || !maps.Equal(got, tt.want) {
				t.Errorf("ParseGPUs(%q) = %v, %v, want %v", tt.spec, got, err, tt.want)
			}
		})
	}
}
