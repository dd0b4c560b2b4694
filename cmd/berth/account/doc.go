// Package account has the commands with which people sign in, choose a cluster
// and an organization, and manage their own API keys, passwords and members.
//
// Package contexts keeps the clusters that a person has signed in to. Accounts of others
// are in package admin.
package account
