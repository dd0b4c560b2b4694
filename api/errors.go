package api

import (
	"errors"

	"berth/compute"
)

// errSecretGone answers the repeat of a request whose first answer had a secret
// that is not stored.
func errSecretGone(what, id string) error {
	if id != "" {
		id = " It is " + id + "."
	}
	return compute.Errorf(compute.CodeConflict,
		"An earlier request with this Idempotency-Key has made the %s; its secret is shown once.%s", what, id).
		Named("secret_not_kept")
}

// detailOf returns the stable name of a refusal, "" for other errors.
func detailOf(err error) string {
	if e, ok := errors.AsType[*compute.Error](err); ok {
		return e.Detail
	}
	return ""
}
