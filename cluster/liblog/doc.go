// Package liblog turns the log lines of raft and memberlist into slog records.
//
// It is not for Berth's own messages. Library errors become warnings: raft logs
// an unreachable peer as an error, and failures that must end the process are
// reported through cluster.Config.Fatal.
package liblog
