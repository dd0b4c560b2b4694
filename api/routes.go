package api

import (
	"net/http"
	"strings"

	"berth/api/wire"
	"berth/compute"
)

// Where the API is.
const (
	root       = "/api/v2/external"
	streamRoot = "/api/v1"

	streaming = root + "/execution/streaming"
	selecting = root + "/execution/gpu_selection"
)

// need is what a route needs of its caller.
type need uint8

const (
	needNothing  need = iota // Anyone.
	needCaller               // A good credential, and with it an organization.
	needOrg                  // The same, as a member of the organization in the path.
	needOperator             // The root token, or an operator's credential.
	needScraper              // The metrics token, where there is one.
	needStream               // The token of the stream, or as needCaller.
)

// route is one method of one path: how it is served, and documented.
type route struct {
	method  string
	path    string
	tag     string // Of the specification; "" for what it does not know.
	summary string
	need    need
	role    compute.OrgRole // The least role in the organization, with needOrg.
	once    bool            // Keeps a secret: a repeat with its Idempotency-Key is refused.
	bare    bool            // The body may be left out, as if it were {}.
	local   bool            // Each node answers for itself, one without a replica too.

	query   func() any // New value to read the query into; nil for none.
	body    func() any // New value to read the body into; nil for none.
	reply   func() any // What is answered; nil for what is not JSON.
	accepts []string   // Media types of answers that are not JSON.

	handle func(*request) (any, error)
	params []string // Names in the path.
}

// of returns a function that makes a new T.
func of[T any]() func() any { return func() any { return new(T) } }

// table returns all routes.
func (s *Server) table() []route {
	var all []route
	for _, group := range [][]route{
		s.accountRoutes(), s.startRoutes(), s.executionRoutes(), s.workloadRoutes(),
		s.billingRoutes(), s.machineRoutes(), s.adminRoutes(), s.nodeRoutes(),
	} {
		all = append(all, group...)
	}
	for i := range all {
		for segment := range strings.SplitSeq(all[i].path, "/") {
			if strings.HasPrefix(segment, "{") {
				all[i].params = append(all[i].params, strings.Trim(segment, "{}"))
			}
		}
	}
	return all
}

func (s *Server) accountRoutes() []route {
	const keys = root + "/orgs/{slug}/api-keys"
	return []route{
		{
			method: http.MethodPost, path: root + "/auth/login", tag: "Authentication", once: true,
			summary: "Sign in with a password.",
			body:    of[wire.Login](), reply: of[wire.Session](), handle: s.login,
		}, {
			method: http.MethodPost, path: root + "/auth/refresh", tag: "Authentication", once: true,
			summary: "Change a refresh token for a new pair. The old one is dead; its reuse after 30 s revokes the family.",
			body:    of[wire.RefreshBody](), reply: of[wire.Session](), handle: s.refresh,
		}, {
			method: http.MethodPost, path: root + "/auth/logout", tag: "Authentication",
			summary: "Revoke a refresh token and its family.",
			body:    of[wire.RefreshBody](), reply: of[wire.Message](), handle: s.logout,
		}, {
			method: http.MethodGet, path: root + "/orgs", tag: "Organizations", need: needCaller,
			summary: "The organizations of the caller.",
			reply:   of[[]wire.Org](), handle: s.listOrgs,
		}, {
			method: http.MethodGet, path: root + "/user/status", tag: "Account", need: needCaller,
			summary: "Who the caller is, and what can be spent.",
			reply:   of[wire.UserStatus](), handle: s.userStatus,
		}, {
			method: http.MethodGet, path: keys, tag: "Account", need: needOrg,
			summary: "The API keys of an organization.",
			reply:   of[[]wire.Key](), handle: s.listKeys,
		}, {
			method: http.MethodPost, path: keys, tag: "Org API Keys", need: needOrg, role: compute.OrgAdmin, once: true,
			summary: "Create an API key. Its value is shown this once.",
			body:    of[wire.NewKey](), reply: of[wire.MintedKey](), handle: s.createKey,
		}, {
			method: http.MethodDelete, path: keys + "/{id}", tag: "Org API Keys", need: needOrg, role: compute.OrgAdmin,
			summary: "Delete an API key. It is dead from the next request on.",
			reply:   of[wire.Message](), handle: s.deleteKey,
		}, {
			method: http.MethodPatch, path: keys + "/{id}/toggle", tag: "Org API Keys", need: needOrg, role: compute.OrgAdmin,
			summary: "Make an active API key inactive, or the other way round.",
			reply:   of[wire.Key](), handle: s.toggleKey,
		}, {
			method: http.MethodPost, path: keys + "/{id}/regenerate", tag: "Org API Keys", need: needOrg,
			role: compute.OrgAdmin, once: true,
			summary: "Give an API key a new value, which is shown this once. The old value is dead.",
			reply:   of[wire.MintedKey](), handle: s.regenerateKey,
		},
	}
}

func (s *Server) startRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: streaming + "/start", tag: "Streaming Execution", need: needCaller,
			summary: "Execute Python code.",
			body:    of[wire.PythonStart](), reply: of[wire.Started](), handle: s.startPython,
		}, {
			method: http.MethodGet, path: streaming + "/{id}/status", tag: "Streaming Execution", need: needCaller,
			summary: "Where an execution stands.",
			reply:   of[wire.ExecutionStatus](), handle: s.pythonStatus,
		}, {
			method: http.MethodPost, path: streaming + "/abort/{id}", tag: "Streaming Execution", need: needCaller,
			summary: "End an execution at once.",
			reply:   of[wire.Stopped](), handle: s.abortPython,
		}, {
			method: http.MethodGet, path: streamRoot + "/stream/{id}", tag: "Streaming Execution", need: needStream,
			summary: "The output as server-sent events, from its beginning or behind Last-Event-ID.",
			accepts: []string{eventStream}, handle: s.streamOutput,
		}, {
			method: http.MethodPost, path: streamRoot + "/stream/{id}", tag: "Streaming Execution", need: needStream,
			summary: "The same as GET.",
			accepts: []string{eventStream}, handle: s.streamOutput,
		}, {
			method: http.MethodPost, path: selecting + "/start", tag: "GPU Selection Execution", need: needCaller,
			summary: "Execute the same code on every GPU type that fits, and recommend one. execution_type is not used.",
			body:    of[wire.SelectionStart](), reply: of[wire.SelectionStarted](), handle: s.startSelection,
		}, {
			method: http.MethodGet, path: selecting + "/{id}", tag: "GPU Selection Execution", need: needCaller,
			summary: "What a GPU selection found so far: a row per GPU type, the Pareto front, a recommendation.",
			query:   of[wire.SelectionQuery](), reply: of[wire.Selection](), handle: s.getSelection,
			accepts: []string{"text/csv", "image/svg+xml"}, // With ?format=.
		}, {
			method: http.MethodGet, path: selecting + "/{id}/status", tag: "GPU Selection Execution", need: needCaller,
			summary: "Where a GPU selection stands.",
			reply:   of[wire.ExecutionStatus](), handle: s.selectionStatus,
		}, {
			method: http.MethodPost, path: selecting + "/abort/{id}", tag: "GPU Selection Execution", need: needCaller,
			summary: "End a GPU selection with all its sub-executions at once.",
			reply:   of[wire.Stopped](), handle: s.abortSelection,
		},
	}
}

func (s *Server) executionRoutes() []route {
	const one = root + "/execution/{id}"
	return []route{
		{
			method: http.MethodGet, path: one, tag: "Execution Management", need: needCaller,
			summary: "Everything about one execution. With wait, held until it changes or ends.",
			query:   of[wire.ExecutionQuery](), reply: of[wire.Execution](), handle: s.getExecution,
		}, {
			method: http.MethodDelete, path: one, tag: "Execution Management", need: needCaller,
			summary: "Remove the code and the output of an execution that has ended. Its billing row stays.",
			reply:   of[wire.Stopped](), handle: s.deleteExecution,
		}, {
			method: http.MethodGet, path: one + "/timing", tag: "Execution Management", need: needCaller,
			summary: "How long an execution was in each phase.",
			reply:   of[wire.TimingAnswer](), handle: s.getTiming,
		}, {
			method: http.MethodGet, path: one + "/explain", tag: "Execution Management", need: needCaller,
			summary: "Why an execution waits: nodes by typed reason, what is ahead of it, when it may start;" +
				" and why it is where it is.",
			query: of[wire.ExplainQuery](), reply: of[wire.Explanation](), handle: s.explain,
		},
	}
}

func (s *Server) workloadRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/workloads/list", tag: "Workload Management", need: needCaller,
			summary: "The executions that have not ended, newest first.",
			reply:   of[[]wire.ExecutionSummary](), handle: s.listWorkloads,
		}, {
			method: http.MethodPost, path: root + "/workloads/abort/{id}", tag: "Workload Management", need: needCaller,
			summary: "End an execution of any kind at once. It becomes aborted.",
			reply:   of[wire.Stopped](), handle: s.abortWorkload,
		}, {
			method: http.MethodPost, path: root + "/workloads/stop/{id}", tag: "Workload Management", need: needCaller,
			summary: "End an execution of any kind gracefully: SIGTERM first. It becomes cancelled.",
			reply:   of[wire.Stopped](), handle: s.stopWorkload,
		},
	}
}

func (s *Server) billingRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/billing/history", tag: "Billing", need: needCaller,
			summary: "The executions of the organization, newest first.",
			query:   of[wire.HistoryQuery](), reply: of[wire.ExecutionHistory](), handle: s.history,
		}, {
			method: http.MethodGet, path: root + "/billing/credits", tag: "Billing", need: needCaller,
			summary: "Where the organization's credits stand.",
			reply:   of[wire.Credits](), handle: s.credits,
		}, {
			method: http.MethodGet, path: root + "/billing/credits/details", tag: "Billing", need: needCaller,
			summary: "Where the organization's credits stand, with whose they are.",
			reply:   of[wire.CreditsDetails](), handle: s.creditsDetails,
		}, {
			method: http.MethodGet, path: root + "/billing/ledger", tag: "Billing", need: needCaller,
			summary: "The organization's ledger, oldest line first.",
			query:   of[wire.LedgerQuery](), reply: of[wire.Ledger](), handle: s.ledger,
		}, {
			method: http.MethodGet, path: root + "/billing/ledger/verify", tag: "Billing", need: needCaller,
			summary: "Whether the chain of the organization's ledger holds, computed anew.",
			reply:   of[wire.LedgerCheck](), handle: s.verifyLedger,
		}, {
			method: http.MethodPost, path: root + "/billing/grant", tag: "Billing", need: needOperator,
			summary: "Give credits to an organization.",
			body:    of[wire.Grant](), reply: of[wire.Message](), handle: s.grant,
		},
	}
}

func (s *Server) machineRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/machine-types", tag: "Machine Types", need: needCaller,
			summary: "The hardware profiles that the nodes make up.",
			reply:   of[wire.MachineTypes](), handle: s.machineTypes,
		}, {
			method: http.MethodGet, path: root + "/pricing", tag: "Pricing", need: needCaller,
			summary: "What a second of each hardware profile costs.",
			reply:   of[wire.Pricing](), handle: s.pricing,
		}, {
			method: http.MethodGet, path: root + "/user/quotas", tag: "User Quotas", need: needCaller,
			summary: "What the organization may use, and uses.",
			reply:   of[wire.Quotas](), handle: s.quotas,
		}, {
			method: http.MethodGet, path: root + "/user/quotas/available-hardware", tag: "User Quotas", need: needCaller,
			summary: "The hardware profiles that the organization may use.",
			reply:   of[wire.AvailableHardware](), handle: s.availableHardware,
		},
	}
}

func (s *Server) adminRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: root + "/admin/join-tokens", need: needOperator, once: true,
			summary: "Make a token with which nodes join. It is shown this once.",
			body:    of[wire.NewJoinToken](), reply: of[wire.JoinToken](), handle: s.createJoinToken,
		}, {
			method: http.MethodPost, path: root + "/admin/users", need: needOperator,
			summary: "Create a user with an organization of its own.",
			body:    of[wire.NewUser](), reply: of[wire.User](), handle: s.createUser,
		}, {
			method: http.MethodGet, path: root + "/admin/nodes", need: needOperator,
			summary: "The nodes of the cluster with their GPUs.",
			reply:   of[wire.Nodes](), handle: s.listNodes,
		}, {
			method: http.MethodPost, path: root + "/admin/nodes/{id}/drain", need: needOperator, bare: true,
			summary: "Place no new work on a node. What it executes goes on, or is moved or ended by a deadline.",
			body:    of[wire.NewDrain](), reply: of[wire.Node](), handle: s.drainNode,
		}, {
			method: http.MethodPost, path: root + "/admin/nodes/{id}/undrain", need: needOperator,
			summary: "Place new work on a node again.",
			reply:   of[wire.Node](), handle: s.undrainNode,
		}, {
			method: http.MethodDelete, path: root + "/admin/nodes/{id}", need: needOperator,
			summary: "Remove a node that executes nothing, for good. Refused while the quorum, or blobs, would go with it.",
			query:   of[wire.RemovalQuery](), reply: of[wire.Message](), handle: s.removeNode,
		}, {
			method: http.MethodGet, path: root + "/admin/quotas", need: needOperator,
			summary: "What an organization, its API keys and its tags are granted, and hold.",
			query:   of[wire.QuotaQuery](), reply: of[wire.OrgQuotas](), handle: s.orgQuotas,
		}, {
			method: http.MethodPost, path: root + "/admin/quotas", need: needOperator,
			summary: "Replace what an organization, one of its API keys or one of its tags is granted. All zero forgets it.",
			body:    of[wire.NewQuota](), reply: of[wire.OrgQuotas](), handle: s.setQuota,
		}, {
			method: http.MethodGet, path: root + "/admin/brake", need: needOperator,
			summary: "Whether so many nodes have vanished at once that no attempt is given up, and which.",
			reply:   of[wire.Brake](), handle: s.brake,
		}, {
			method: http.MethodPost, path: root + "/admin/brake", need: needOperator,
			summary: "Say how many nodes that vanish at once are too many, or that those which have vanished are gone.",
			body:    of[wire.NewBrake](), reply: of[wire.Brake](), handle: s.setBrake,
		}, {
			method: http.MethodGet, path: root + "/admin/raft/peers", need: needOperator,
			summary: "The members of the Raft configuration.",
			reply:   of[wire.Peers](), handle: s.listPeers,
		}, {
			method: http.MethodGet, path: root + "/admin/raft/snapshot", need: needOperator,
			summary: "A backup of the state: all that was acknowledged before the request. berth admin snapshot reads it.",
			accepts: []string{octetStream}, handle: s.saveSnapshot,
		}, {
			method: http.MethodPost, path: root + "/admin/raft/transfer", need: needOperator, bare: true,
			summary: "Have another server lead. The process that leads does it once in its life.",
			body:    of[wire.NewTransfer](), reply: of[wire.Transfer](), handle: s.transfer,
		}, {
			method: http.MethodGet, path: root + "/admin/state", need: needOperator,
			summary: "What this node's own replica of the state is: its index, its hash and sums of it.",
			query:   of[wire.StateQuery](), reply: of[wire.State](), handle: s.replicaState,
		}, {
			method: http.MethodGet, path: root + "/admin/replay", need: needOperator,
			summary: "Compute the scheduler's plan in a Raft entry again, from the state that it was computed from.",
			query:   of[wire.ReplayQuery](), reply: of[wire.Replay](), handle: s.replay,
		}, {
			method: http.MethodPost, path: root + "/admin/whatif", need: needOperator,
			summary: "What the scheduler would do with the queue if nodes were added, left out or drained. It changes nothing.",
			body:    of[wire.WhatIf](), reply: of[wire.WhatIfAnswer](), handle: s.whatIf,
		},
	}
}

func (s *Server) nodeRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/health/ping", local: true,
			summary: "Whether the node answers.", reply: of[wire.Ping](), handle: s.ping,
		}, {
			method: http.MethodGet, path: root + "/health/version", local: true,
			summary: "What the node executes.", reply: of[wire.Version](), handle: s.version,
		}, {
			method: http.MethodGet, path: "/livez", local: true,
			summary: "Whether the process lives.", reply: of[wire.Ping](), handle: s.ping,
		}, {
			method: http.MethodGet, path: "/readyz", local: true,
			summary: "Whether the node can serve: 503 when not.", reply: of[wire.Health](), handle: s.ready,
		}, {
			method: http.MethodGet, path: "/healthz", local: true,
			summary: "How the node is, always 200.", reply: of[wire.Health](), handle: s.health,
		}, {
			method: http.MethodGet, path: "/metrics", need: needScraper, local: true,
			summary: "Metrics for Prometheus.", accepts: []string{"text/plain"}, handle: s.scrape,
		}, {
			method: http.MethodGet, path: "/metrics/targets", need: needScraper,
			summary: "Every node, for Prometheus' HTTP service discovery.",
			reply:   of[[]wire.Target](), handle: s.targets,
		}, {
			method: http.MethodGet, path: "/openapi.json", local: true,
			summary: "This API as OpenAPI 3.1.", accepts: []string{"application/json"}, handle: s.document,
		},
	}
}
