package compute

// RegistryCredentials sign in at a registry of images, for one pull. The state holds
// them sealed, and no longer than the execution lives.
type RegistryCredentials struct {
	Username   string `json:"username,omitempty"`
	Password   string `json:"password,omitempty"`
	Server     string `json:"server,omitempty"` // The registry's host; "" for that of the image.
	AWSKeyID   string `json:"aws_key_id,omitempty"`
	AWSSecret  string `json:"aws_secret,omitempty"`
	AWSSession string `json:"aws_session,omitempty"`
	AWSRegion  string `json:"aws_region,omitempty"`
}
