// Package fault injects faults into the program for tests. It provides
// failpoints between the steps of operations that must survive a crash, and
// bugs that check whether a test finds them.
//
// Without the build tag faults, all of it is empty functions and constants that
// the compiler removes: a released binary has no failpoint and no bug. With the
// tag, the environment of the process decides:
//
//	BERTH_FAULTS       failpoint rules, as in "disk.append.after=exit@3; executor.outbox.put=error:ENOSPC"
//	BERTH_FAULTS_FILE  a file with more rules, which the running process rereads
//	BERTH_FAULTS_LOG   a file to which each process appends the points it has reached and their actions
//	BERTH_PLANT        the planted bugs, as in "unsynced-log,stale-epoch"
//
// A rule is NAME=ACTION or NAME=ACTION@N, for the N-th time only. Semicolons or
// new lines separate rules. The actions are exit (at once, as by kill -9, with
// ExitCode), panic, sleep:DURATION, and, at points that can fail, error,
// error:EIO or error:ENOSPC. Two names are not points. clock takes a duration by
// which Offset shifts this process's wall clock. snapshot_every takes the
// number of entries after which a snapshot is made and the log is truncated. An
// unknown name is an error when the process starts.
//
// Points lists the failpoints and Plants the bugs. A test compares both lists
// with the calls in the source. This package imports only the standard library,
// and nothing of it that blocks: supervisors load it first.
package fault
