package wire

import "net/url"

// SignUp is the body of POST /auth/signup.
type SignUp struct {
	Email    string `json:"email" required:"true" minlen:"3" maxlen:"320"`
	Password string `json:"password" required:"true" minlen:"10" maxlen:"256" secret:"true"`
	FullName string `json:"full_name" maxlen:"255"`
	OrgName  string `json:"org_name" maxlen:"255" doc:"Name of the organization that is made for the user."`
}

// Check holds the rules that tags cannot say.
func (s *SignUp) Check(f *Faults) {
	if s.Email != "" {
		s.Email = checkEmail(f, s.Email, "email")
	}
	checkName(f, s.FullName, "body", "full_name")
	checkName(f, s.OrgName, "body", "org_name")
}

// IdentityProvider answers GET /auth/oidc.
type IdentityProvider struct {
	Issuer           string `json:"issuer"`
	ClientID         string `json:"client_id"`
	AuthorizationURL string `json:"authorization_endpoint"`
	Device           bool   `json:"device" doc:"Whether POST /auth/oidc/device starts a sign-in."`
}

// DeviceCode answers POST /auth/oidc/device.
type DeviceCode struct {
	Device    string `json:"device_code" doc:"For POST /auth/oidc/token. Keep it secret."`
	User      string `json:"user_code" doc:"Code that the person types at verification_uri."`
	URL       string `json:"verification_uri"`
	FullURL   string `json:"verification_uri_complete" doc:"With the code in it; empty where the provider has none."`
	Interval  int    `json:"interval" doc:"Seconds between polls."`
	ExpiresIn int    `json:"expires_in" doc:"Seconds."`
}

// OIDCToken is the body of POST /auth/oidc/token: a device code, or the code that the
// provider gave a browser.
type OIDCToken struct {
	Device      string `json:"device_code" maxlen:"4096" secret:"true"`
	Code        string `json:"code" maxlen:"4096" secret:"true" doc:"In place of device_code, with the three that follow."`
	Verifier    string `json:"code_verifier" maxlen:"128" secret:"true" doc:"That of PKCE (RFC 7636)."`
	RedirectURL string `json:"redirect_uri" maxlen:"2048"`
	Nonce       string `json:"nonce" maxlen:"256"`
}

// Check holds the rules that tags cannot say.
func (t *OIDCToken) Check(f *Faults) {
	const shortest = 43 // Least length of a verifier in RFC 7636.
	switch {
	case (t.Device == "") == (t.Code == ""):
		f.Value("give device_code or code", "body", "device_code")
	case t.Code == "":
	case len(t.Verifier) < shortest:
		f.Value("code needs its code_verifier", "body", "code_verifier")
	case t.Nonce == "":
		f.Value("code needs the nonce of its request", "body", "nonce")
	default:
		if u, err := url.Parse(t.RedirectURL); err != nil || u.Scheme == "" || u.Host == "" {
			f.Value("not a URL", "body", "redirect_uri")
		}
	}
}

// Nothing is the body of POST /auth/oidc/device, which needs no field.
type Nothing struct{}
