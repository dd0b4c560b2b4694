// Package fault makes the program fail where a test wants it to: failpoints
// between the steps of what must survive a crash, and bugs that are planted to
// see that a test finds them.
//
// Without the build tag faults all of it is empty functions and constants that
// the compiler removes: a released binary has no failpoint and no bug. With the
// tag, the environment of the process decides:
//
//	BERTH_FAULTS       what happens where, as in "disk.append.after=exit@3; executor.outbox.put=error:ENOSPC"
//	BERTH_FAULTS_FILE  a file with more of the same, read again while the process lives
//	BERTH_FAULTS_LOG   a file to which each process appends what it has reached and what it did there
//	BERTH_PLANT        the planted bugs, as in "unsynced-log,stale-epoch"
//
// A rule is NAME=ACTION or NAME=ACTION@N, for the N-th time only; rules are
// separated by semicolons or new lines. The actions are exit (at once, as by
// kill -9, with ExitCode), panic, sleep:DURATION, and, at points that can fail,
// error, error:EIO or error:ENOSPC. Two names are no points: clock takes a
// duration, by which Offset shifts this process's time of the day, and
// snapshot_every a number of entries, after which snapshots are made and the log
// is cut. A name that does not exist is an error when the process starts.
//
// Points lists the failpoints and Plants the bugs. A test holds both lists to
// the calls in the source. This package imports the standard library alone, and
// nothing of it that waits: supervisors load it first.
package fault
