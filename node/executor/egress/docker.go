package egress

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

const (
	iptables   = "iptables"
	userChain  = "DOCKER-USER" // Docker leaves this chain to the rules of others.
	lockWait   = "-w"          // For another process that changes rules.
	noSuchName = "No chain/target/match by that name"
)

// passDocker lets packets of the node's attempts pass the rules of Docker, which drop
// every forwarded packet that is not a container's. The rules of the Table still hold
// for them. Bridges of containers are left to Docker, which keeps them apart.
func (t *Table) passDocker() error {
	if _, err := exec.LookPath(iptables); err != nil {
		return nil //nolint:nilerr // Docker needs it too.
	}
	if out, err := iptablesCommand(lockWait, "-n", "-L", userChain).CombinedOutput(); err != nil {
		if strings.Contains(string(out), noSuchName) {
			return nil // No Docker.
		}
		return fmt.Errorf("read rules of docker: %w: %s", err, strings.TrimSpace(string(out)))
	}
	// Each is put before the others: the last one is the first to match.
	for _, rule := range t.dockerRules() {
		if iptablesCommand(ruleArgs("-C", rule)...).Run() == nil {
			continue
		}
		if out, err := iptablesCommand(ruleArgs("-I", rule)...).CombinedOutput(); err != nil {
			return fmt.Errorf("add rule for docker: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// leaveDocker removes what passDocker has added.
func (t *Table) leaveDocker() {
	if _, err := exec.LookPath(iptables); err != nil {
		return
	}
	for _, rule := range t.dockerRules() {
		_ = iptablesCommand(ruleArgs("-D", rule)...).Run() // It fails where there is no such rule.
	}
}

// iptablesCommand returns a call of iptables. It ends by itself: it waits for the lock of
// other callers, who are as short.
func iptablesCommand(args ...string) *exec.Cmd {
	return exec.CommandContext(context.Background(), iptables, args...)
}

// dockerRules returns the rules of passDocker, the last to match first.
func (t *Table) dockerRules() [][]string {
	own, bridges := t.prefix()+"+", t.prefix()+bridgeMark+"+"
	return [][]string{
		{"-o", own, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
		{"-i", own, "-j", "ACCEPT"},
		{"-i", bridges, "-j", "RETURN"},
	}
}

func ruleArgs(how string, rule []string) []string {
	return append([]string{lockWait, how, userChain}, rule...)
}
