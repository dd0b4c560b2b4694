//go:build long

package node_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/wire"
	"berth/node/nodetest"
)

// tool is a client of S3 that people have.
type tool struct {
	t    *testing.T
	name string
	args []string // Before those of a call.
	env  []string
}

// do executes the tool and returns what it prints, with its warnings only if it fails.
func (c tool) do(args ...string) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.name, slices.Concat(c.args, args)...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") }), c.env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String() + errs.String(), err
	}
	return out.String(), nil
}

func (c tool) must(args ...string) string {
	c.t.Helper()
	out, err := c.do(args...)
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s", c.name, strings.Join(args, " "), err, out)
	}
	return out
}

// mustFiles makes a directory of files, one of them large.
func mustFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, size := range map[string]int{"a.txt": 5, "sub/b.bin": 100_000, "sub/deep/ü c": 1, "big": 17 << 20, "empty": 0} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, noise(size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mustSame compares two directories.
func mustSame(t *testing.T, a, b string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "diff", "-r", a, b).CombinedOutput()
	if err != nil {
		t.Errorf("they differ: %v\n%s", err, out)
	}
}

// TestClientsOfS3 has rclone and s3cmd use the bucket, through a follower and a worker.
func TestClientsOfS3(t *testing.T) {
	c := newStorageCluster(t)
	for _, n := range []*nodetest.Node{c.Follower(), c.Nodes[3]} {
		b := mustS3(t, c.Follower(), c.key)
		made := b.creds
		made.Endpoint = n.Peer().S3URL()
		t.Run("rclone "+n.Config.Name, func(t *testing.T) { useRclone(t, made, n.Config.Name) })
		t.Run("s3cmd "+n.Config.Name, func(t *testing.T) { useS3cmd(t, made, n.Config.Name) })
	}
}

func useRclone(t *testing.T, made wire.StorageCredentials, folder string) {
	c := tool{t: t, name: "rclone", args: []string{"--config", filepath.Join(t.TempDir(), "none"), "--s3-upload-cutoff", "5Mi", "--s3-chunk-size", "5Mi"}, env: []string{
		"RCLONE_CONFIG_B_TYPE=s3", "RCLONE_CONFIG_B_PROVIDER=Other", "RCLONE_CONFIG_B_ENDPOINT=" + made.Endpoint,
		"RCLONE_CONFIG_B_ACCESS_KEY_ID=" + made.AccessKey, "RCLONE_CONFIG_B_SECRET_ACCESS_KEY=" + made.SecretKey,
		"RCLONE_CONFIG_B_SESSION_TOKEN=" + made.SessionToken, "RCLONE_CONFIG_B_REGION=" + made.Region,
	}}
	dir, remote := mustFiles(t), "b:"+made.BucketName+"/rclone-"+folder
	c.must("sync", dir, remote)
	c.must("check", dir, remote)
	if err := os.Remove(filepath.Join(dir, "a.txt")); err != nil {
		t.Fatal(err)
	}
	c.must("sync", dir, remote)
	if out := c.must("lsf", "-R", remote); strings.Contains(out, "a.txt") || !strings.Contains(out, "sub/deep/ü c") {
		t.Errorf("listed are\n%s", out)
	}
	back := t.TempDir()
	c.must("copy", remote, back)
	mustSame(t, dir, back)
	if out := c.must("lsjson", remote+"/big"); !strings.Contains(out, `"Size":17825792`) {
		t.Errorf("the large file is %s", out)
	}
	link := strings.TrimSpace(c.must("link", "--expire", "1m", remote+"/sub/b.bin"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(body.Bytes(), noise(100_000)) {
		t.Errorf("the link answers %d with %d bytes, %v", resp.StatusCode, body.Len(), err)
	}
	c.must("copyto", remote+"/big", remote+"/big copy")
	c.must("purge", remote)
	if out := c.must("lsf", "-R", "b:"+made.BucketName); strings.Contains(out, "rclone-"+folder) {
		t.Errorf("left are\n%s", out)
	}
}

func useS3cmd(t *testing.T, made wire.StorageCredentials, folder string) {
	host := strings.TrimPrefix(made.Endpoint, "http://")
	config := filepath.Join(t.TempDir(), "s3cfg")
	text := fmt.Sprintf("[default]\naccess_key = %s\nsecret_key = %s\naccess_token = %s\nhost_base = %s\nhost_bucket = %s\n"+
		"bucket_location = %s\nuse_https = False\nsignature_v2 = False\nmultipart_chunk_size_mb = 5\n",
		made.AccessKey, made.SecretKey, made.SessionToken, host, host, made.Region)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := tool{t: t, name: "s3cmd", args: []string{"-c", config, "--no-progress"}}
	dir, remote := mustFiles(t), "s3://"+made.BucketName+"/s3cmd-"+folder+"/"
	c.must("put", "--recursive", dir+"/", remote)
	if out := c.must("ls", "--recursive", remote); !strings.Contains(out, "17825792") || !strings.Contains(out, "sub/deep/") {
		t.Errorf("listed are\n%s", out)
	}
	if out := c.must("ls", remote); !strings.Contains(out, "DIR") || strings.Contains(out, "deep") {
		t.Errorf("listed by folder are\n%s", out)
	}
	back := t.TempDir()
	c.must("get", "--recursive", remote, back+"/")
	mustSame(t, dir, back)
	c.must("cp", remote+"a.txt", remote+"copy")
	if out := c.must("info", remote+"copy"); !strings.Contains(out, "File size: 5") {
		t.Errorf("it is\n%s", out)
	}
	c.must("del", "--recursive", "--force", remote)
	if out := c.must("ls", "--recursive", remote); strings.TrimSpace(out) != "" {
		t.Errorf("left are\n%s", out)
	}
	foreign := strings.Replace(remote, made.BucketName, "org-00000000-0000-0000-0000-000000000000", 1)
	if out, err := c.do("ls", foreign); err == nil || !strings.Contains(out, "NoSuchBucket") {
		t.Errorf("of another bucket: %v\n%s", err, out)
	}
}
