package compute

import "time"

// Limits of organizations and invites.
const (
	MaxOwnedOrgs = 20                 // Organizations that a user may own and make another.
	MaxMadeOrgs  = 100                // That a user may make, with those that were deleted: their books stay.
	MaxInvites   = 100                // Of an organization, with those that were answered lately.
	InviteTTL    = 7 * 24 * time.Hour // Time to answer an invite.
)

// InviteStatus is what became of an invite.
type InviteStatus uint8

// The states of invites. Values are written to disk: append only.
const (
	InvitePending InviteStatus = iota
	InviteAccepted
	InviteDeclined
)

var inviteStatusNames = names{"pending", "accepted", "declined"}

// String returns the status as clients read it.
func (s InviteStatus) String() string { return inviteStatusNames.text(uint8(s)) }

// Invite asks a person to join an organization. Whoever has its token and the account
// with its e-mail address can.
type Invite struct {
	ID        InviteID     `cbor:"1,keyasint"`
	Org       OrgID        `cbor:"2,keyasint"`
	Email     string       `cbor:"3,keyasint"` // Lower case.
	Role      OrgRole      `cbor:"4,keyasint,omitempty"`
	Status    InviteStatus `cbor:"5,keyasint,omitempty"`
	By        UserID       `cbor:"6,keyasint"`
	Hash      Hash         `cbor:"7,keyasint"` // Of the token, which is kept nowhere.
	CreatedAt Instant      `cbor:"8,keyasint"`
	ExpiresAt Instant      `cbor:"9,keyasint"`
	User      UserID       `cbor:"10,keyasint,omitempty"` // Who answered.
}

// Open reports whether the invite can be answered.
func (i *Invite) Open(now Instant) bool { return i.Status == InvitePending && now < i.ExpiresAt }
