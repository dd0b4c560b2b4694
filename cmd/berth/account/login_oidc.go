package account

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/contexts"
	"berth/loop"
)

// slowDown is by how much polls become rarer when the provider asks for that.
const slowDown = 5 * time.Second

// signInWithProvider has the person sign in at the cluster's identity provider, on any
// machine that has a browser.
func (f *loginFlags) signInWithProvider(cmd *cobra.Command, t *cli.Target, saved *contexts.Context) error {
	anonymous := *t
	anonymous.Org = ""
	c, err := anonymous.Client(cmd.Context())
	if err != nil {
		return err
	}
	code, err := c.Device(cmd.Context())
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: open %s and enter the code %s\n", code.URL, code.User)
	if code.FullURL != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "berth: or open %s\n", code.FullURL)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(code.ExpiresIn)*time.Second)
	defer cancel()
	session, err := awaitApproval(ctx, c, code)
	if err != nil {
		return err
	}
	saved.Keep(session.AccessToken, session.RefreshToken, session.ExpiresIn)
	return nil
}

// awaitApproval polls until the person has signed in.
func awaitApproval(ctx context.Context, c *client.Client, code wire.DeviceCode) (wire.Session, error) {
	interval := time.Duration(code.Interval) * time.Second
	for {
		if !loop.Sleep(ctx, interval) {
			return wire.Session{}, errors.New("nobody has signed in: start over")
		}
		session, err := c.DeviceLogin(ctx, code.Device)
		switch client.CodeOf(err) {
		case "authorization_pending":
		case "slow_down":
			interval += slowDown
		default:
			return session, err
		}
	}
}

// signUp makes an account with an organization, and signs it in.
func (f *loginFlags) signUp(cmd *cobra.Command, t *cli.Target, saved *contexts.Context) error {
	email := f.email
	if email == "" {
		var err error
		if email, err = cli.AskLine(cmd, "Email", "email"); err != nil {
			return err
		}
	}
	password, err := cli.Secret{
		Prompt: "Password of at least 10 characters", File: f.passwordFile, Flag: "password-file",
		Twice: f.passwordFile == "",
	}.Read(cmd)
	if err != nil {
		return err
	}
	anonymous := *t
	anonymous.Org = ""
	c, err := anonymous.Client(cmd.Context())
	if err != nil {
		return err
	}
	session, err := c.SignUp(cmd.Context(), wire.SignUp{Email: email, Password: password, OrgName: f.orgName})
	if err != nil {
		return err
	}
	saved.Keep(session.AccessToken, session.RefreshToken, session.ExpiresIn)
	return nil
}
