package compute

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of the variables of a user.
const (
	MaxVariables     = 100
	MaxVariableValue = 32 << 10 // Bytes.
	MaxVariableName  = 128

	// MaxVariableBytes is the most that the names and values of a user take together.
	// They fit into one start of a process, beside the variables that the start sets.
	MaxVariableBytes = 256 << 10
)

// OwnVariables is the prefix of variables that only Berth sets.
const OwnVariables = "BERTH_"

// Variable is an environment variable that a user keeps in an organization for all
// own executions there. The value of a secret is in the state as ciphertext only.
type Variable struct {
	ID     VariableID `cbor:"1,keyasint"`
	Org    OrgID      `cbor:"2,keyasint"`
	User   UserID     `cbor:"3,keyasint"`
	Name   string     `cbor:"4,keyasint"`
	Secret bool       `cbor:"5,keyasint,omitempty"`
	Value  string     `cbor:"6,keyasint,omitempty"` // Plain value of a variable that is not secret.
	Sealed []byte     `cbor:"7,keyasint,omitempty"` // Value of a secret, sealed with the data key of number Key.
	Key    uint64     `cbor:"8,keyasint,omitempty"`

	CreatedAt Instant `cbor:"9,keyasint"`
	UpdatedAt Instant `cbor:"10,keyasint"`
}

// Context returns the context that the value of v is sealed for: it cannot be read as
// another's.
func (v *Variable) Context() []byte {
	return []byte("variable " + v.Org.String() + " " + v.User.String() + " " + v.Name)
}

// DataKey is the key that seals the secrets of one organization, itself sealed with
// the master key. Without it they are lost.
type DataKey struct {
	Org       OrgID   `cbor:"1,keyasint"`
	Number    uint64  `cbor:"2,keyasint"`
	Sealed    []byte  `cbor:"3,keyasint"`
	CreatedAt Instant `cbor:"4,keyasint"`
}

// Context returns the context that the key is sealed for.
func (k *DataKey) Context() []byte { return []byte("data key " + k.Org.String()) }

// variableName reports whether name may be that of a variable.
func variableName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= MaxVariableName
}

// ExpandSecrets returns a text with the values of the secrets that it names as
// ${{ secrets.NAME }}. It fails if value does, or if something else is between
// ${{ and }}.
func ExpandSecrets(text string, value func(name string) (string, error)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${{")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		inside, after, closed := strings.Cut(rest, "}}")
		name, secret := strings.CutPrefix(strings.TrimSpace(inside), "secrets.")
		if !closed || !secret || !variableName(name) {
			return "", errors.New("between ${{ and }} stands secrets.NAME")
		}
		filled, err := value(name)
		if err != nil {
			return "", fmt.Errorf("secret %s: %w", name, err)
		}
		out.WriteString(filled)
		text = after
	}
}

// BadVariable returns why the name or the value of a variable is invalid, "" if both are
// valid.
func BadVariable(name, value string) string {
	switch {
	case !variableName(name):
		return "a name has letters, digits and underscores, does not begin with a digit, and has at most 128 of them"
	case strings.HasPrefix(name, OwnVariables):
		return "names that begin with " + OwnVariables + " are Berth's own"
	case len(value) > MaxVariableValue:
		return "a value has at most 32768 bytes"
	case strings.ContainsRune(value, 0):
		return "a value has no NUL"
	}
	return ""
}

// EnvVariable is a variable as an execution gets it.
type EnvVariable struct {
	Name   string `cbor:"1,keyasint" json:"name"`
	Value  string `cbor:"2,keyasint" json:"value"`
	Secret bool   `cbor:"3,keyasint,omitempty" json:"secret,omitempty"` // Masked in output.
}
