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
	CreditBalance compute.Credits `json:"credit_balance" doc:"What can be spent now."`
	Status        string          `json:"status" doc:"Always authenticated."`
}

// AvailableHardware answers /user/quotas/available-hardware.
type AvailableHardware struct {
	Profiles []string `json:"available_hardware_profiles"`
}
