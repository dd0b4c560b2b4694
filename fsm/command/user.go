package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// CreateUser records a user with an organization of its own, which gets
	// the sign-up grant. The e-mail and the slug must be free. With Join the user
	// becomes a member of the organization that has the slug, if there is one.
	CreateUser struct {
		Op    Op              `cbor:"1,keyasint"`
		Actor Actor           `cbor:"2,keyasint"` // Root or an operator.
		User  compute.User    `cbor:"3,keyasint"`
		Org   compute.Org     `cbor:"4,keyasint"`
		Join  bool            `cbor:"5,keyasint,omitempty"`
		Role  compute.OrgRole `cbor:"6,keyasint,omitempty"` // In an organization that exists.
	}

	// SetUser gives a user a new password, which ends the user's logins, or
	// disables or enables the user. Users change their own password only: their change
	// is refused if the password that they gave is another one by then.
	SetUser struct {
		Op        Op             `cbor:"1,keyasint"`
		Actor     Actor          `cbor:"2,keyasint"`
		User      compute.UserID `cbor:"3,keyasint"`
		Password  string         `cbor:"4,keyasint,omitempty"` // Its hash; "" leaves the password.
		Temporary bool           `cbor:"5,keyasint,omitempty"` // The password is to be changed by the user.
		Keep      compute.UUID   `cbor:"6,keyasint,omitzero"`  // The login that goes on, by its family.
		Disabled  *bool          `cbor:"7,keyasint,omitempty"` // Nil leaves it.
		// Checked is the PasswordDigest of the user whose password was checked; zero for
		// changes by operators.
		Checked compute.Hash `cbor:"80,keyasint,omitzero"`
	}

	// SignUp records a user that made its own account, with an organization that is made
	// too or, with Join, as a member of the one with the slug.
	SignUp struct {
		Op    Op           `cbor:"1,keyasint"`
		Actor Actor        `cbor:"2,keyasint,omitzero"` // The user, for the audit record.
		User  compute.User `cbor:"3,keyasint"`
		Org   compute.Org  `cbor:"4,keyasint"`
		Join  bool         `cbor:"5,keyasint,omitempty"`
	}

	// LinkUser records the subject of a user at the identity provider, once, and later the
	// address and the name that the provider has for the subject.
	LinkUser struct {
		Op      Op             `cbor:"1,keyasint"`
		Actor   Actor          `cbor:"2,keyasint,omitzero"` // The user, for the audit record.
		User    compute.UserID `cbor:"3,keyasint"`
		Subject string         `cbor:"4,keyasint"`
		// Email and FullName replace those of a user who has the subject; "" keeps them.
		Email    string `cbor:"80,keyasint,omitempty"`
		FullName string `cbor:"81,keyasint,omitempty"`
	}

	// SetDefaultOrg makes an organization the default one of the actor.
	SetDefaultOrg struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Org   compute.OrgID `cbor:"3,keyasint"`
	}

	// DeleteUser ends the account of the actor, with the organizations in which nobody
	// else is. The user's executions stay in the history, under the identifier. It is
	// refused if the password that confirmed it was changed meanwhile.
	DeleteUser struct {
		Op    Op    `cbor:"1,keyasint"`
		Actor Actor `cbor:"2,keyasint"`
		// Checked is the PasswordDigest of the user when the deletion was confirmed; zero
		// while servers do not compare it.
		Checked compute.Hash `cbor:"80,keyasint,omitzero"`
	}
)

// userRows returns the rows of commands about people.
func userRows() []*row {
	return []*row{
		payload[CreateUser]{
			number: 10, since: format.First,
			op:   func(c CreateUser) Op { return c.Op },
			uses: func(c CreateUser) uint64 { return formatIf(c.Join || c.User.Temporary, format.Lab) },
		}.row(),
		payload[SetUser]{
			number: 43, since: format.Lab, onFullDisk: true,
			op:   func(c SetUser) Op { return c.Op },
			uses: func(c SetUser) uint64 { return formatIf(c.Checked != (compute.Hash{}), format.Rotation) },
		}.row(),
		payload[SetDefaultOrg]{
			number: 56, since: format.Services,
			op: func(c SetDefaultOrg) Op { return c.Op },
		}.row(),
		payload[DeleteUser]{
			number: 60, since: format.Services, onFullDisk: true,
			op:   func(c DeleteUser) Op { return c.Op },
			uses: func(c DeleteUser) uint64 { return formatIf(c.Checked != (compute.Hash{}), format.Rotation) },
		}.row(),
		payload[SignUp]{
			number: 94, since: format.Accounts,
			op: func(c SignUp) Op { return c.Op },
		}.row(),
		payload[LinkUser]{
			number: 95, since: format.Accounts,
			op:   func(c LinkUser) Op { return c.Op },
			uses: func(c LinkUser) uint64 { return formatIf(c.Email != "" || c.FullName != "", format.Rotation) },
		}.row(),
	}
}
