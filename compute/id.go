package compute

import (
	"encoding/hex"
	"errors"
)

// UUID is an RFC 9562 identifier in its 16-byte form. Zero means "none".
type UUID [16]byte

// errUUID is returned for text that is not a UUID in its 36-character form.
var errUUID = errors.New("not a UUID")

// ParseUUID parses 36 characters with hyphens, in either case.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return UUID{}, errUUID
	}
	packed := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(u[:], []byte(packed)); err != nil {
		return UUID{}, errUUID
	}
	return u, nil
}

// String returns the lower-case form with hyphens, or "" for the zero UUID.
func (u UUID) String() string {
	if u.IsZero() {
		return ""
	}
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// IsZero reports whether u is "none".
func (u UUID) IsZero() bool { return u == UUID{} }

// MarshalText returns what String returns.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText accepts what ParseUUID accepts, and "" for the zero UUID.
func (u *UUID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*u = UUID{}
		return nil
	}
	v, err := ParseUUID(string(text))
	if err != nil {
		return err
	}
	*u = v
	return nil
}

// MarshalBinary returns the 16 bytes, or none for the zero UUID.
func (u UUID) MarshalBinary() ([]byte, error) {
	if u.IsZero() {
		return nil, nil
	}
	return u[:], nil
}

// UnmarshalBinary accepts what MarshalBinary returns.
func (u *UUID) UnmarshalBinary(data []byte) error {
	switch len(data) {
	case 0:
		*u = UUID{}
	case len(u):
		copy(u[:], data)
	default:
		return errUUID
	}
	return nil
}

// Identifiers, each a UUID of its own type, so that one cannot be passed in
// place of another.
type (
	// ExecutionID names an execution; a UUIDv7 created where it was submitted.
	ExecutionID struct{ UUID }
	// NodeID names a node; a UUIDv4 kept in its data directory.
	NodeID struct{ UUID }
	// OrgID names an organization.
	OrgID struct{ UUID }
	// UserID names a user.
	UserID struct{ UUID }
	// KeyID names an API key's record (not the key's own text).
	KeyID struct{ UUID }
	// BundleID names an uploaded bundle; a UUIDv7.
	BundleID struct{ UUID }
	// VariableID names an environment variable of a user; a UUIDv7.
	VariableID struct{ UUID }
	// InviteID names an invite to an organization; a UUIDv7.
	InviteID struct{ UUID }
	// EnvironmentID names a named environment; a UUIDv7.
	EnvironmentID struct{ UUID }
	// ObjectUploadID names an upload of an object in parts; a UUIDv7.
	ObjectUploadID struct{ UUID }
	// OpID names one request, so that a repeat is recognised.
	OpID struct{ UUID }
)

// GPUID names a GPU: the UUID that NVML reports, or SIM-<node>-<n>.
type GPUID string

// ParseExecutionID parses an execution's identifier.
func ParseExecutionID(s string) (ExecutionID, error) {
	u, err := ParseUUID(s)
	return ExecutionID{u}, err
}

// ParseNodeID parses a node's identifier.
func ParseNodeID(s string) (NodeID, error) {
	u, err := ParseUUID(s)
	return NodeID{u}, err
}

// ParseKeyID parses a key's identifier.
func ParseKeyID(s string) (KeyID, error) {
	u, err := ParseUUID(s)
	return KeyID{u}, err
}

// ParseBundleID parses the identifier of an uploaded bundle.
func ParseBundleID(s string) (BundleID, error) {
	u, err := ParseUUID(s)
	return BundleID{u}, err
}

// ParseVariableID parses the identifier of an environment variable.
func ParseVariableID(s string) (VariableID, error) {
	u, err := ParseUUID(s)
	return VariableID{u}, err
}

// ParseInviteID parses the identifier of an invite.
func ParseInviteID(s string) (InviteID, error) {
	u, err := ParseUUID(s)
	return InviteID{u}, err
}

// ParseObjectUploadID parses the identifier of an upload of an object.
func ParseObjectUploadID(s string) (ObjectUploadID, error) {
	u, err := ParseUUID(s)
	return ObjectUploadID{u}, err
}

// ParseUserID parses a user's identifier.
func ParseUserID(s string) (UserID, error) {
	u, err := ParseUUID(s)
	return UserID{u}, err
}

// ParseOrgID parses the identifier of an organization.
func ParseOrgID(s string) (OrgID, error) {
	u, err := ParseUUID(s)
	return OrgID{u}, err
}
