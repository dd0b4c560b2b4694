package transport

import (
	"errors"
	"strings"
	"testing"
)

// TestAdviceOnHandshakes checks that TLS errors about the other side's refusal
// come with a remedy.
func TestAdviceOnHandshakes(t *testing.T) {
	for said, word := range map[string]string{
		"expired certificate":           "timedatectl set-ntp true",
		"unknown certificate authority": "copy ca.crt",
		"bad certificate":               "its log says why",
	} {
		err := Advise(errors.New("remote error: tls: " + said))
		if text := err.Error(); !strings.Contains(text, said) || !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}
