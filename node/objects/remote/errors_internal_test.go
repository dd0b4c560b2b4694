package remote

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"berth/compute"
)

// TestCause keeps tokens out of logs, and addresses out of what users read.
func TestCause(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "acct.example"}}
	sent := &url.Error{Op: "Put", URL: "https://acct.example/files/blobs/00?sv=1&sig=canary", Err: dial}
	err := failed("put", fmt.Errorf("write: %w", sent))
	if err.Error() != "unavailable: The object store failed: put" {
		t.Errorf("for users it is %q", err)
	}
	text := compute.Detailed(err).Error()
	if strings.Contains(text, "canary") || !strings.Contains(text, "https://acct.example/files/blobs/00") ||
		!strings.Contains(text, "no such host") {
		t.Errorf("for operators it is %q", text)
	}
	if !errors.Is(err, dial) || !unresolved(err) {
		t.Error("the error of the connection is gone")
	}
	azure := errors.New("PUT https://acct.example/files/blobs/00\n" + rule + "\nRESPONSE 409: 409\nERROR CODE: Busy\n" + rule + "\n<xml>\n")
	if got := (cause{azure}).Error(); got != "PUT https://acct.example/files/blobs/00 RESPONSE 409: 409 ERROR CODE: Busy" {
		t.Errorf("an error of Azure is %q", got)
	}
}
