package handler

import "berth/compute"

// ErrSecretGone answers the repeat of a request whose first answer had a secret
// that is not stored.
func ErrSecretGone(what, id string) error {
	if id != "" {
		id = " It is " + id + "."
	}
	return compute.Errorf(compute.CodeConflict,
		"An earlier request with this Idempotency-Key has made the %s; its secret is shown once.%s", what, id).
		Named("secret_not_kept")
}
