package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// SetMember changes the role of a member. An operator may also add a user.
	SetMember struct {
		Op    Op              `cbor:"1,keyasint"`
		Actor Actor           `cbor:"2,keyasint"`
		Org   compute.OrgID   `cbor:"3,keyasint"`
		User  compute.UserID  `cbor:"4,keyasint"`
		Role  compute.OrgRole `cbor:"5,keyasint,omitempty"`
	}

	// RemoveMember ends a membership, and deletes the keys that act as the member
	// in the organization.
	RemoveMember struct {
		Op    Op             `cbor:"1,keyasint"`
		Actor Actor          `cbor:"2,keyasint"`
		Org   compute.OrgID  `cbor:"3,keyasint"`
		User  compute.UserID `cbor:"4,keyasint"`
	}

	// CreateOrg makes an organization whose owner is the actor. It gets no sign-up
	// grant.
	CreateOrg struct {
		Op    Op          `cbor:"1,keyasint"`
		Actor Actor       `cbor:"2,keyasint"`
		Org   compute.Org `cbor:"3,keyasint"`
	}

	// SetOrg changes an organization. Empty fields keep their value.
	SetOrg struct {
		Op           Op            `cbor:"1,keyasint"`
		Actor        Actor         `cbor:"2,keyasint"`
		Org          compute.OrgID `cbor:"3,keyasint"`
		Name         string        `cbor:"4,keyasint,omitempty"`
		Slug         string        `cbor:"5,keyasint,omitempty"`
		BillingEmail string        `cbor:"6,keyasint,omitempty"`
	}

	// TrustOrg says whether executions of an organization may be placed on nodes whose
	// isolation is below the minimum.
	TrustOrg struct {
		Op      Op            `cbor:"1,keyasint"`
		Actor   Actor         `cbor:"2,keyasint"`
		Org     compute.OrgID `cbor:"3,keyasint"`
		Trusted bool          `cbor:"4,keyasint,omitempty"`
	}

	// DeleteOrg ends an organization that has no live executions: its members, keys,
	// invites, variables and secrets are gone. Its ledger and history stay.
	DeleteOrg struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Org   compute.OrgID `cbor:"3,keyasint"`
	}

	// PutInvite invites a person to an organization.
	PutInvite struct {
		Op     Op             `cbor:"1,keyasint"`
		Actor  Actor          `cbor:"2,keyasint"`
		Invite compute.Invite `cbor:"3,keyasint"`
	}

	// RevokeInvite removes an invite.
	RevokeInvite struct {
		Op     Op               `cbor:"1,keyasint"`
		Actor  Actor            `cbor:"2,keyasint"`
		Org    compute.OrgID    `cbor:"3,keyasint"`
		Invite compute.InviteID `cbor:"4,keyasint"`
	}

	// AnswerInvite accepts or declines an invite to the actor's e-mail address.
	AnswerInvite struct {
		Op     Op               `cbor:"1,keyasint"`
		Actor  Actor            `cbor:"2,keyasint"`
		Org    compute.OrgID    `cbor:"3,keyasint"`
		Invite compute.InviteID `cbor:"4,keyasint"`
		Hash   compute.Hash     `cbor:"5,keyasint"` // Hash of the token.
		Accept bool             `cbor:"6,keyasint,omitempty"`
	}
)

// orgRows returns the rows of commands about organizations, members and invites.
func orgRows() []*row {
	return []*row{
		payload[SetMember]{
			number: 44, since: format.Lab,
			op: func(c SetMember) Op { return c.Op },
		}.row(),
		payload[RemoveMember]{
			number: 45, since: format.Lab, onFullDisk: true,
			op: func(c RemoveMember) Op { return c.Op },
		}.row(),
		payload[CreateOrg]{
			number: 53, since: format.Services,
			op: func(c CreateOrg) Op { return c.Op },
		}.row(),
		payload[SetOrg]{
			number: 54, since: format.Services,
			op: func(c SetOrg) Op { return c.Op },
		}.row(),
		payload[DeleteOrg]{
			number: 55, since: format.Services, onFullDisk: true,
			op: func(c DeleteOrg) Op { return c.Op },
		}.row(),
		payload[PutInvite]{
			number: 57, since: format.Services,
			op: func(c PutInvite) Op { return c.Op },
		}.row(),
		payload[RevokeInvite]{
			number: 58, since: format.Services, onFullDisk: true,
			op: func(c RevokeInvite) Op { return c.Op },
		}.row(),
		payload[AnswerInvite]{
			number: 59, since: format.Services,
			op: func(c AnswerInvite) Op { return c.Op },
		}.row(),
		payload[TrustOrg]{
			number: 64, since: format.Containers,
			op: func(c TrustOrg) Op { return c.Op },
		}.row(),
	}
}
