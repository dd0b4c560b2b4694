package wire

import "berth/compute"

// Member is a member of an organization, as the other members see one.
type Member struct {
	UserID   compute.UserID  `json:"user_id"`
	Email    string          `json:"email"`
	FullName *string         `json:"full_name"`
	Role     compute.OrgRole `json:"role"`
	JoinedAt compute.Instant `json:"joined_at"`
}

// MemberChange is the body of PATCH /orgs/{slug}/members/{user_id}.
type MemberChange struct {
	Role string `json:"role" required:"true" enum:"owner,admin,member"`
}
