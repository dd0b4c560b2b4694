//nolint:lll // A field and its rules are one line.
package wire

// RotateSecrets is the body of POST /admin/secrets/rotate.
type RotateSecrets struct {
	Org string `json:"org" required:"true" minlen:"1" maxlen:"64" doc:"Slug of the organization."`
}

// RotatedSecrets answers POST /admin/secrets/rotate.
type RotatedSecrets struct {
	Org      string `json:"org"`
	Key      uint64 `json:"key" doc:"Number of the data key that seals from now on; 0 for an organization without secrets."`
	Resealed int    `json:"resealed" doc:"Secrets that were sealed again."`
	Left     int    `json:"left" doc:"Secrets of live executions that only earlier keys open. Those keys stay until a rotation after their end."`
}
