package compute

// Org is an organization: it owns executions, keys and credits.
type Org struct {
	ID           OrgID   `cbor:"1,keyasint"`
	Slug         string  `cbor:"2,keyasint"`
	Name         string  `cbor:"3,keyasint"`
	BillingEmail string  `cbor:"4,keyasint,omitempty"`
	Trusted      bool    `cbor:"5,keyasint,omitempty"`
	CreatedAt    Instant `cbor:"6,keyasint"`
	DeletedAt    Instant `cbor:"7,keyasint,omitempty"` // Its ledger and history stay for the books.

	// Signing has the secrets that sign its callbacks, the newest last.
	Signing []CallbackSecret `cbor:"12,keyasint,omitempty"`
}

// OrgRole is the permissions of a member.
type OrgRole uint8

// The roles of members, weakest first. Values are written to disk: append only.
const (
	OrgMember OrgRole = iota // May use the organization.
	OrgAdmin                 // May also manage members, invites and keys.
	OrgOwner                 // May also manage roles and the slug, and delete the organization.
)

var orgRoleNames = names{"member", "admin", "owner"}

// String returns the role as clients spell it.
func (r OrgRole) String() string { return orgRoleNames.text(uint8(r)) }

// MarshalText returns what String returns.
func (r OrgRole) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText accepts what String returns.
func (r *OrgRole) UnmarshalText(text []byte) error {
	v, err := orgRoleNames.value("role", text)
	*r = OrgRole(v)
	return err
}

// OrgAct is something that a member does in an organization, or to it.
type OrgAct uint8

// The acts that roles differ in.
const (
	ActUse           OrgAct = iota // Submit and see executions, see members and credits, leave.
	ActManageKeys                  // Make, disable and delete keys of the organization.
	ActRemoveMember                // Remove a member of the role member.
	ActRemoveManager               // Remove an admin or an owner.
	ActSetRole                     // Change the role of a member.
	ActInvite                      // Invite a member or an admin.
	ActRename                      // Change the name and the billing address.
	ActSetSlug                     // Change the slug.
	ActDelete                      // Delete the organization.
	ActSetBudget                   // Set the budget of the organization or of a member.
	ActReadAudit                   // Read the audit trail.
)

// orgActs has the weakest role that permits each act.
var orgActs = [...]OrgRole{ //nolint:gochecknoglobals // A table.
	ActUse:           OrgMember,
	ActManageKeys:    OrgAdmin,
	ActRemoveMember:  OrgAdmin,
	ActRemoveManager: OrgOwner,
	ActSetRole:       OrgOwner,
	ActInvite:        OrgAdmin,
	ActRename:        OrgAdmin,
	ActSetSlug:       OrgOwner,
	ActDelete:        OrgOwner,
	ActSetBudget:     OrgOwner,
	ActReadAudit:     OrgOwner,
}

// RoleFor returns the weakest role that permits an act.
func RoleFor(act OrgAct) OrgRole { return orgActs[act] }

// ActOfRemoval returns the act of removing a member with a role.
func ActOfRemoval(role OrgRole) OrgAct {
	if role > OrgMember {
		return ActRemoveManager
	}
	return ActRemoveMember
}

// Membership is the membership of a user in an organization.
type Membership struct {
	Org      OrgID   `cbor:"1,keyasint"`
	User     UserID  `cbor:"2,keyasint"`
	Role     OrgRole `cbor:"3,keyasint,omitempty"`
	Default  bool    `cbor:"4,keyasint,omitempty"` // One per user.
	JoinedAt Instant `cbor:"5,keyasint"`
}

// User is a person with a password.
type User struct {
	ID           UserID  `cbor:"1,keyasint"`
	Email        string  `cbor:"2,keyasint"` // Lower case; unique.
	FullName     string  `cbor:"3,keyasint,omitempty"`
	PasswordHash string  `cbor:"4,keyasint"` // argon2id in PHC form.
	Active       bool    `cbor:"5,keyasint,omitempty"`
	Operator     bool    `cbor:"6,keyasint,omitempty"` // May use /admin.
	TokenVersion uint64  `cbor:"7,keyasint,omitempty"` // A new version invalidates all access tokens.
	CreatedAt    Instant `cbor:"8,keyasint"`
	Temporary    bool    `cbor:"9,keyasint,omitempty"` // The password was made by an operator: the user is to change it.
	OrgsMade     int     `cbor:"10,keyasint,omitempty"`
	DeletedAt    Instant `cbor:"11,keyasint,omitempty"` // The account has ended; its identifier stays for the history.

	// Subject identifies the user at the identity provider: the issuer, a space and the
	// provider's identifier. It is "" for users that sign in with a password only.
	Subject string `cbor:"80,keyasint,omitempty"`
	// Unproven marks a user that signed up with a password: nobody has proved that the
	// address is the user's, so that it may belong to somebody else.
	Unproven bool `cbor:"81,keyasint,omitempty"`
}
