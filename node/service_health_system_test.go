package node_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
	"berth/testsize"
)

// checkHealth has the health of a replica fail, and get well again: meanwhile the other one
// answers all requests. In the long form both fail, and the service answers 503.
func checkHealth(t *testing.T, api *client.Client, address, key string, s wire.Service) {
	sockets := map[string]*webSocket{} // By the replica. They stay open, so that each gets one.
	for i := 0; len(sockets) < 2; i++ {
		ws := mustDialWebSocket(t, address+"/ws", key)
		_, hello := ws.mustRead(t)
		sockets[string(hello)] = ws
		if i == 16 {
			t.Fatalf("all connections are to %v", sockets)
		}
	}
	become := func(health string, ws *webSocket) {
		t.Helper()
		ws.mustWrite(t, textFrame, []byte(health))
		if _, data := ws.mustRead(t); string(data) != health {
			t.Fatalf("%q came back as %q", health, data)
		}
	}
	sick, other := s.Rows[0].ExecutionID.String(), s.Rows[1].ExecutionID.String()
	become("sick", sockets[sick])
	s = mustService(t, api, s.ExecutionID, "a replica to be not ready", func(s wire.Service) bool { return s.Ready < 2 })
	if s.Status != compute.StatusRunning || s.Rows[0].Ready || !s.Rows[1].Ready || s.Rows[0].Status != compute.StatusRunning {
		t.Errorf("the service is %+v", s)
	}
	nodetest.Eventually(t, endWait, "the other replica alone to answer", func() bool {
		return slices.Equal(answering(t, address, key), []string{other})
	})
	if testsize.Long {
		become("sick", sockets[other])
		mustService(t, api, s.ExecutionID, "no replica to be ready", func(s wire.Service) bool { return s.Ready == 0 })
		nodetest.Eventually(t, endWait, "the service to be unavailable", func() bool {
			answer, text := mustAsk(t, http.DefaultClient, http.MethodGet, address+"/", key, nil)
			if after := answer.Header.Get("Retry-After"); answer.StatusCode == http.StatusServiceUnavailable && after == "" {
				t.Fatalf("it does not say when to ask again: %s", text)
			}
			return answer.StatusCode == http.StatusServiceUnavailable
		})
		become("well", sockets[other])
	}
	become("well", sockets[sick])
	s = mustService(t, api, s.ExecutionID, "both replicas to be ready", func(s wire.Service) bool { return s.Ready == 2 })
	nodetest.Eventually(t, endWait, "both replicas to answer", func() bool { return len(answering(t, address, key)) == 2 })
	for _, row := range s.Rows {
		if row.Restarts != 0 || row.Crashes != 0 {
			t.Errorf("health that fails restarts nothing: %+v", row)
		}
	}
	e, err := api.Execution(t.Context(), s.Rows[0].ExecutionID, 0)
	if err != nil || !strings.Contains(e.CombinedOutput, "not ready: GET /health answers 500") {
		t.Errorf("its output does not say why it was not ready: %q, %v", e.CombinedOutput, err)
	}
}

// checkCrashes starts a service whose program ends at once, again and again. Its record and its
// explanation say why, and when the next one starts, which takes longer after each end.
func checkCrashes(t *testing.T, api *client.Client) {
	const first, most = 100 * time.Millisecond, time.Second // As serviceCluster has it.
	started, err := api.SubmitService(t.Context(), client.StartService{Start: client.Start{Code: "raise SystemExit(7)"}})
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, "the explanation of five ends in a row", func() bool {
		s, err := api.Service(t.Context(), started.ExecutionID)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Rows) == 0 || s.Rows[0].NextStart == nil {
			return false // It runs, or is about to.
		}
		row := s.Rows[0]
		if row.Status != compute.StatusFailed || row.StatusDetails == nil || *row.StatusDetails != "exit_code" || row.Restarts != row.Crashes-1 {
			t.Fatalf("the replica is %+v", row)
		}
		e, err := api.Execution(t.Context(), row.ExecutionID, 0)
		if err != nil || e.FinishTime == nil || e.ReturnCode == nil || *e.ReturnCode != 7 {
			t.Fatalf("the replica that ended is %+v, %v", e, err)
		}
		if got, want := row.NextStart.Sub(*e.FinishTime), min(first<<(row.Crashes-1), most); got != want {
			t.Fatalf("after %d ends the next start is in %v, want %v", row.Crashes, got, want)
		}
		x, err := api.Explain(t.Context(), started.ExecutionID, false)
		if err != nil || len(x.Replicas) != 1 {
			t.Fatalf("it is explained by %+v, %v", x.Replicas, err)
		}
		return row.Crashes >= 5 && x.Replicas[0].Crashes == row.Crashes && x.Replicas[0].NextStart != nil &&
			*x.Replicas[0].NextStart == *row.NextStart && *x.Replicas[0].StatusDetails == "exit_code"
	})
	if _, err := api.DeleteService(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusCancelled {
		t.Errorf("it is %v", e.Status)
	}
}
