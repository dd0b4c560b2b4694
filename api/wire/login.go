//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// Login is the body of POST /auth/login.
type Login struct {
	Email    string `json:"email" required:"true" minlen:"3" maxlen:"320"`
	Password string `json:"password" required:"true" minlen:"1" maxlen:"1024" secret:"true"`
}

// RefreshBody is the body of POST /auth/refresh and of POST /auth/logout.
type RefreshBody struct {
	RefreshToken string `json:"refresh_token" required:"true" minlen:"1" maxlen:"512" secret:"true"`
}

// Session answers a login and a refresh.
type Session struct {
	AccessToken  string         `json:"access_token"`
	RefreshToken string         `json:"refresh_token"`
	TokenType    string         `json:"token_type" doc:"Always bearer."`
	ExpiresIn    int            `json:"expires_in" doc:"Seconds that the access token is good for."`
	UserID       compute.UserID `json:"user_id"`
	Email        string         `json:"email"`
	Temporary    bool           `json:"password_temporary,omitempty" doc:"An operator made the password: change it with POST /user/password."`
}

// Message is an answer with a message alone.
type Message struct {
	Message string `json:"message"`
}
