package compute

// IdentityProvider is where people sign in with OpenID Connect.
type IdentityProvider struct {
	Issuer           string
	ClientID         string
	AuthorizationURL string
	Device           bool // It has a sign-in for programs without a browser.
}

// DeviceCode is the sign-in of a program without a browser.
type DeviceCode struct {
	Device   string // Secret: its holder gets the session.
	User     string // The code that the person types at URL.
	URL      string
	FullURL  string // With the code in it; "" where the provider has none.
	Interval int    // Seconds between polls.
	Expires  Instant
}

// Identity is a person as the identity provider knows them.
type Identity struct {
	Subject       string // The issuer, a space and the provider's identifier.
	Email         string // Lower case.
	EmailVerified bool
	Name          string
}
