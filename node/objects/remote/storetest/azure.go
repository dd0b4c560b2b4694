package storetest

import (
	"context"
	"encoding/base64"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"gocloud.dev/blob"
)

// azureAccount is the account of every server, and azureKey its key.
const azureAccount = "berthtest"

func azureKey() string { return base64.StdEncoding.EncodeToString([]byte("the key of a test")) }

// azure is Azure Blob Storage, as Azurite, Microsoft's own server for tests, serves it.
func azure() Kind { return Kind{Scheme: "azblob", Start: startAzure, At: azureAt} }

func azureAt(tb testing.TB, host, bucket string) string {
	tb.Setenv("AZURE_STORAGE_ACCOUNT", azureAccount)
	tb.Setenv("AZURE_STORAGE_KEY", azureKey())
	query := url.Values{"domain": {host}, "protocol": {"http"}, "localemu": {"true"}}
	return "azblob://" + bucket + "?" + query.Encode()
}

func startAzure(tb testing.TB) *Store {
	tb.Helper()
	node := installed(tb, "node")
	program := installed(tb, "node_modules/azurite/dist/src/blob/main.js")
	dir := tb.TempDir()
	cmd := exec.CommandContext(context.Background(), node, program, "--blobHost", "127.0.0.1", "--blobPort", "0",
		"--location", dir, "--disableTelemetry", "--silent",
		"--skipApiVersionCheck") // It does not know the newest version.
	cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+azureAccount+":"+azureKey())
	address, stop, err := start(tb, "successfully listens on http://", cmd)
	if err != nil {
		tb.Fatal(err)
	}
	host := strings.TrimSpace(address)
	s := &Store{URL: azureAt(tb, host, BucketName), Host: host, dir: dir, stop: stop}
	bucket, err := blob.OpenBucket(tb.Context(), s.URL)
	if err != nil {
		tb.Fatal(err)
	}
	defer bucket.Close()
	var client *container.Client
	if !bucket.As(&client) {
		tb.Fatal("the bucket has no client of Azure")
	}
	if _, err := client.Create(tb.Context(), nil); err != nil {
		tb.Fatal(err)
	}
	return s
}
