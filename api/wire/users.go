//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// UserStatus answers /user/status.
type UserStatus struct {
	UserID        compute.UserID  `json:"user_id"`
	OrgID         compute.OrgID   `json:"org_id"`
	Email         string          `json:"email"`
	FullName      *string         `json:"full_name"`
	CreatedAt     compute.Instant `json:"created_at"`
	IsActive      bool            `json:"is_active"`
	ActiveKeys    int             `json:"active_api_keys_count"`
	CreditBalance compute.Credits `json:"credit_balance" doc:"Credits that can be spent now."`
	Status        string          `json:"status" doc:"Always authenticated."`
}

// AvailableHardware answers /user/quotas/available-hardware.
type AvailableHardware struct {
	Profiles []string `json:"available_hardware_profiles"`
}

// NewUser is the body of POST /admin/users.
type NewUser struct {
	Email    string `json:"email" required:"true" minlen:"3" maxlen:"320"`
	Password string `json:"password" minlen:"10" maxlen:"256" secret:"true" doc:"When absent, one is made and shown in the answer; the user is asked to change it."`
	FullName string `json:"full_name" maxlen:"255"`
	OrgSlug  string `json:"org_slug" required:"true" minlen:"2" maxlen:"39" pattern:"^[a-z0-9](-?[a-z0-9]){1,38}$" doc:"The organization; it is created when it does not exist."`
	OrgName  string `json:"org_name" maxlen:"255" doc:"Name of a new organization; the slug when absent."`
	Role     string `json:"role" enum:"owner,admin,member" doc:"In the organization. When absent, the first member is its owner and the others are members. When given, admin and member need an organization that exists."`
	Operator bool   `json:"operator" default:"false" doc:"Whether the user may use /admin."`
}

// Check holds the rules that tags cannot say.
func (u *NewUser) Check(f *Faults) {
	if u.Email != "" {
		u.Email = checkEmail(f, u.Email, "email")
	}
	checkName(f, u.FullName, "body", "full_name")
	checkName(f, u.OrgName, "body", "org_name")
}

// UserChange is the body of PATCH /admin/users/{id}. Absent fields keep their value.
type UserChange struct {
	Disabled      *bool  `json:"disabled" doc:"Whether the user may not use the cluster. Disabling ends all sessions; API keys are refused until the user is enabled again."`
	Password      string `json:"password" minlen:"10" maxlen:"256" secret:"true" doc:"A new password. It ends all sessions."`
	ResetPassword bool   `json:"reset_password" default:"false" doc:"Make a new password and show it in the answer. The user is asked to change it."`
	OrgSlug       string `json:"org_slug" maxlen:"39" doc:"Make the user a member of this organization, or change the role there."`
	Role          string `json:"role" enum:"owner,admin,member" doc:"In the organization of org_slug; member when absent."`
}

// Check holds the rules that tags cannot say.
func (u *UserChange) Check(f *Faults) {
	if u.Password != "" && u.ResetPassword {
		f.Value("password and reset_password exclude each other", "body", "reset_password")
	}
	if u.Role != "" && u.OrgSlug == "" {
		f.Value("role needs org_slug", "body", "role")
	}
	if u.Disabled == nil && u.Password == "" && !u.ResetPassword && u.OrgSlug == "" {
		f.Value("nothing to change: give disabled, password, reset_password or org_slug", "body")
	}
}

// User is a user as an operator sees one.
type User struct {
	UserID    compute.UserID  `json:"user_id"`
	Email     string          `json:"email"`
	FullName  *string         `json:"full_name"`
	Operator  bool            `json:"operator"`
	IsActive  bool            `json:"is_active" doc:"False for a disabled user."`
	CreatedAt compute.Instant `json:"created_at"`
	Temporary bool            `json:"password_temporary" doc:"The password was made by an operator, and the user has not changed it yet."`
	OrgID     *compute.OrgID  `json:"org_id" doc:"The default organization; null for a user without one."`
	OrgSlug   *string         `json:"org_slug"`
	Orgs      []UserOrg       `json:"orgs"`
	Password  string          `json:"password,omitempty" doc:"Only where it was just made: it is shown this once."`
}

// UserOrg is a membership of a user.
type UserOrg struct {
	OrgID     compute.OrgID   `json:"org_id"`
	OrgSlug   string          `json:"org_slug"`
	Role      compute.OrgRole `json:"role"`
	IsDefault bool            `json:"is_default"`
}

// UsersQuery are the parameters of GET /admin/users.
type UsersQuery struct {
	Limit  int    `json:"limit" default:"1000" min:"1" max:"1000" doc:"Page size."`
	Cursor string `json:"cursor" maxlen:"36" doc:"The X-Next-Cursor of the page before; the first page when absent."`
	Org    string `json:"org" maxlen:"39" doc:"Only members of the organization with this slug."`
	Email  string `json:"email" maxlen:"320" doc:"Only the user with this address."`
}

// PasswordChange is the body of POST /user/password.
type PasswordChange struct {
	Old string `json:"old_password" required:"true" minlen:"1" maxlen:"1024" secret:"true"`
	New string `json:"new_password" required:"true" minlen:"10" maxlen:"256" secret:"true"`
}

// UserDeletion is the body of DELETE /user/delete.
type UserDeletion struct {
	Password string `json:"password" maxlen:"256" secret:"true" doc:"Left out by users without one, who sign in within ten minutes before."`
}
