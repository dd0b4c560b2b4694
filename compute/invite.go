package compute

import "time"

// Limits of organizations and invites.
const (
	MaxOwnedOrgs = 20                 // Organizations that a user may own and make another.
	MaxMadeOrgs  = 100                // Organizations that a user may make, deleted ones included: their ledgers stay.
	MaxInvites   = 100                // Invites of an organization, recently answered ones included.
	InviteTTL    = 7 * 24 * time.Hour // Time to answer an invite.
)

// InviteStatus says whether an invite was answered, and how.
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

// Invite asks a person to join an organization. Joining takes its token and the account
// with its e-mail address.
type Invite struct {
	ID        InviteID     `cbor:"1,keyasint"`
	Org       OrgID        `cbor:"2,keyasint"`
	Email     string       `cbor:"3,keyasint"` // Lower case.
	Role      OrgRole      `cbor:"4,keyasint,omitempty"`
	Status    InviteStatus `cbor:"5,keyasint,omitempty"`
	By        UserID       `cbor:"6,keyasint"`
	Hash      Hash         `cbor:"7,keyasint"` // Hash of the token. The token itself is stored nowhere.
	CreatedAt Instant      `cbor:"8,keyasint"`
	ExpiresAt Instant      `cbor:"9,keyasint"`
	User      UserID       `cbor:"10,keyasint,omitempty"` // The user that answered.
}

// Open reports whether the invite can be answered.
func (i *Invite) Open(now Instant) bool { return i.Status == InvitePending && now < i.ExpiresAt }
