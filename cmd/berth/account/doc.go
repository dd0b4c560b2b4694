// Package account has the commands with which people sign in, choose a cluster
// and an organization, and manage their own API keys, passwords and members.
//
// What a person is signed in to is kept by package contexts. Accounts of others
// are in package admin.
package account
