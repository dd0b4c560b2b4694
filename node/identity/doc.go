// Package identity lets people sign in with an identity provider that speaks OpenID
// Connect.
//
// A Provider is one issuer. It starts sign-ins of programs (Device), and turns a device
// code or an authorization code into who the person is (Poll, Exchange). The issuer is
// discovered at the first use, so that a node starts without it.
//
// It is not for accounts: which user a person is, and whether there is one, is the
// state's. Nothing is kept here but the provider's keys.
//
// Rules:
//
//   - An identity counts with an ID token that the issuer signed for this client. An
//     e-mail address counts only where the provider says that it is verified.
//   - Codes and tokens of the provider are in no error and no log.
package identity
