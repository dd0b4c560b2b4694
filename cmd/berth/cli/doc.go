// Package cli has what the commands of berth share: how they reach a cluster,
// check their command line, read files, print, and end with an exit code.
//
//   - command.go: the root of a command line, groups of commands, checks of
//     arguments and flags
//   - connect.go: the flags --addr and --token-file, and the client for them
//   - exit.go: the table of exit codes and the error that carries one
//   - files.go: text files and standard input, with a limit; the umask
//   - output.go: JSON and tables
//   - terminal.go: the output of executions, which a terminal may not obey
//
// It holds no command, and what one package of commands needs alone stays
// there. Results go to standard output, other messages to standard error.
package cli
