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
	Left     int    `json:"left" doc:"Secrets still sealed with an earlier key. The node's log names those that no key opens. Earlier keys stay until a rotation leaves none."`
}

// RotatedMaster answers POST /admin/secrets/rotate-master.
type RotatedMaster struct {
	Servers  int `json:"servers" doc:"Those that have only the new key; 0 if some of what the old one sealed is left."`
	Resealed int `json:"resealed" doc:"Keys of organizations, of their files and for access tokens that were sealed again."`
	Left     int `json:"left" doc:"Keys that were changed meanwhile: rotate again."`
}

// RotatedRootToken answers POST /admin/root-token/rotate.
type RotatedRootToken struct {
	RootToken string `json:"root_token" doc:"It is shown this once. The one before is refused from now on."`
}
