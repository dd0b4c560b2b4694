package dev_test

import (
	"strings"
	"testing"

	"berth/cmd/berth/dev"
)

func TestParseSettings(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"billing.mode=meter", ""},
		{"limits.timeout_max=168h", ""},
		{"billing.prices={a40: 1.2, rtx_4090: 0.5}", ""},
		{"billing.prices.a40=1.2", ""},
		{"executor.mounts=[{name: data, path: /srv/data, ro: true}]", ""},
		{"python.site_dirs=/opt/a,/opt/b", ""},
		{"billing.mode=", ""},
		{"billing.mode", "is not KEY=VALUE"},
		{"=x", "is not KEY=VALUE"},
		{"billing.mood=meter", "billing.mood: is not a setting"},
		{"nonsense=1", "nonsense: is not a setting"},
		{"billing.mode=free", `"free" is not one of enforce, meter`},
		{"limits.timeout_max=long", "limits.timeout_max"},
		{"limits.keys=0", "must be at least 1"},
		{"billing.prices.a40=0", "a price is above 0"},
		{"billing.prices.A40=1", "in lower case"},
		{"billing.mode={", "is not a YAML value"},
		{"gpus.source=none", "use --gpus"},
		{"name=x", "berth dev sets it"},
		{"api.addr=127.0.0.1:1", "berth dev sets it"},
		{"join.hosts=x:1", "berth dev sets it"},
		{"api.tls.cert=/etc/berth/api.crt", "serves plain HTTP"},
		{"api.tls={cert: a, key: b}", "serves plain HTTP"},
	} {
		_, err := dev.ParseSettings([]string{test.text})
		switch {
		case err == nil && test.want == "":
		case err == nil || test.want == "" || !strings.Contains(err.Error(), test.want):
			t.Errorf("%s: %v, want %q", test.text, err, test.want)
		}
	}
	if _, err := dev.ParseSettings([]string{"python.offline=true", "python.find_links=/srv/wheels"}); err != nil {
		t.Errorf("two settings that need each other: %v", err)
	}
	_, err := dev.ParseSettings([]string{"a=1", "name=b"})
	if err == nil || !strings.Contains(err.Error(), "a: is not a setting") || !strings.Contains(err.Error(), "name differs") {
		t.Errorf("two mistakes: %v", err)
	}
}
