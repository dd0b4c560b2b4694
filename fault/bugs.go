package fault

// Bug is a bug that can be planted into a binary with failpoints, to check that
// a test finds it. Its value is the name in BERTH_PLANT.
type Bug string

// Bugs. Plants describes each.
const (
	VerifyLeader    Bug = "verify-leader"
	UnsyncedLog     Bug = "unsynced-log"
	NoBallast       Bug = "no-ballast"
	UncheckedSums   Bug = "unchecked-sums"
	PipelinedLog    Bug = "pipelined-log"
	DirectVoter     Bug = "direct-voter"
	ReceiptLease    Bug = "receipt-lease"
	ForgottenOps    Bug = "forgotten-ops"
	StaleEpoch      Bug = "stale-epoch"
	MapOrder        Bug = "map-order"
	DoubleCharge    Bug = "double-charge"
	StaleAuth       Bug = "stale-auth"
	IgnoredStarting Bug = "ignored-starting"
	PoisonKey       Bug = "poison-key"
	EndlessLease    Bug = "endless-lease"
)

// Plant describes a bug.
type Plant struct {
	Bug       Bug
	Breaks    string // The broken guarantee.
	Test      string // A package and a test that fails only with the bug; "" if it takes a cluster.
	Says      string // The test's message then.
	Simulated bool   // Package bench/dst runs the bug's code and finds it.
	CaughtBy  string // The workload whose checks fail, and the fault it needs.
}

// Plants returns all bugs.
func Plants() []Plant { //nolint:funlen // A list.
	return []Plant{
		{
			Bug: VerifyLeader, Test: "./cluster TestReadsAreNotStale",
			Says:     "a read that began after",
			Breaks:   "a leader that was replaced while paused answers reads with old data",
			CaughtBy: "register: the leader is paused",
		},
		{
			Bug: UnsyncedLog, Test: "",
			Breaks:   "acknowledged entries are not on any disk",
			CaughtBy: "account or register: power cut of all nodes",
		},
		{
			Bug: NoBallast, Test: "./cluster TestFullFileSystem",
			Says:     "in vain: a ballast",
			Breaks:   "a full disk leaves no space for the compaction that would free some",
			CaughtBy: "any: full disks; new work is not accepted again once space is free",
		},
		{
			Bug: UncheckedSums, Test: "./cluster/disk TestFlippedBitsAreNeverReturned",
			Says:     "damages came back silently",
			Breaks:   "a flipped bit in the log is applied as another command",
			CaughtBy: "any: flipped bits in raft.db",
		},
		{
			Bug: PipelinedLog, Test: "./cluster TestRefusedAppendsDoNotStopReplication",
			Says:     "in vain: the follower catches up",
			Breaks:   "an append that a follower refuses can stop its replication for good",
			CaughtBy: "register: errors of a follower's disk; it never catches up",
		},
		{
			Bug: DirectVoter, Test: "./cluster TestATokenAdmitsOneNodeOnce",
			Says:     "propose without n2 on",
			Breaks:   "a joining server counts in the quorum before it holds any data",
			CaughtBy: "register: a joining server dies before its Raft starts",
		},
		{
			Bug: ReceiptLease, Test: "./cluster TestContactCountsFromTheSend",
			Says: "a contact is", Simulated: true,
			Breaks:   "a node counts its lease from the answer, and trusts it longer than the leader does",
			CaughtBy: "life: nodes are paused with answers in flight",
		},
		{
			Bug: ForgottenOps, Test: "./fsm TestRepeatGetsTheFirstAnswer",
			Says: "the repeat is answered with", Simulated: true,
			Breaks:   "a repeated request takes effect twice",
			CaughtBy: "account or life: any fault that loses answers",
		},
		{
			Bug: StaleEpoch, Test: "./fsm TestStaleReportsAreHarmless",
			Says: "was accepted, want", Simulated: true,
			Breaks:   "a report on an older attempt ends the newest one",
			CaughtBy: "life with retries: a node is cut off for longer than a lease",
		},
		{
			Bug: MapOrder, Test: "./fsm TestReplicasAgree",
			Says: "the replicas have different", Simulated: true,
			Breaks:   "replicas decide the commands of one entry in different orders",
			CaughtBy: "account: none needed; the states of the replicas differ",
		},
		{
			Bug: DoubleCharge, Test: "./fsm TestExecutionCompletesAndIsCharged",
			Says: "balance is", Simulated: true,
			Breaks:   "an execution is charged twice",
			CaughtBy: "life: none needed; the ledger does not add up",
		},
		{
			Bug: StaleAuth, Test: "./api TestStaleReads",
			Says:     "want 503 unavailable",
			Breaks:   "a node that is behind accepts a revoked key",
			CaughtBy: "keys: a follower is cut off or paused",
		},
		{
			Bug: IgnoredStarting, Test: "./node/executor TestNodeAndSupervisorKilled",
			Says: "ended as", Simulated: true,
			Breaks:   "a restarted node mistakes started code for code that never ran, and starts it again",
			CaughtBy: "life: node and supervisor are killed",
		},
		{
			Bug: PoisonKey, Test: "./fsm TestNoKeyStopsTheServers",
			Says:     "stops every server",
			Breaks:   "an API key with a certain name stops every server while it applies the entry, again at each start",
			CaughtBy: "keys, with that name: none needed; no node stays up until the entry is skipped",
		},
		{
			Bug: EndlessLease, Test: "./node/executor/supervise TestLateContact",
			Says:     "the timer did not fire at the end of the lease",
			Breaks:   "a supervisor does not end its code when its lease has expired",
			CaughtBy: "life: a node is cut off or paused for longer than a lease",
		},
	}
}
