// Package account has the endpoints about people and organizations: sign-in and
// accounts, organizations with their members, invites and quotas, API keys, environment
// variables, the secrets that sign callbacks, and audit trails.
//
// It is not for what organizations use and pay for: executions, files and credits have
// packages of their own. Passwords and tokens are made and checked in package auth.
//
// Rules. A secret is in the answer that makes it and nowhere else: a repeat of the
// request is refused (handler.ErrSecretGone). Values of users' secrets are sealed here,
// before they are proposed. An answer does not show whether an account exists.
package account
