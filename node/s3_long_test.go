//go:build long

package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
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

// TestClientsOfS3 has rclone, s3cmd and awscli use the bucket, through a follower and a worker.
func TestClientsOfS3(t *testing.T) {
	c := newStorageCluster(t)
	for _, n := range []*nodetest.Node{c.Follower(), c.Nodes[3]} {
		b := mustS3(t, c.Follower(), c.key)
		made := b.creds
		made.Endpoint = n.Peer().S3URL()
		t.Run("rclone "+n.Config.Name, func(t *testing.T) { useRclone(t, made, n.Config.Name) })
		t.Run("aws "+n.Config.Name, func(t *testing.T) { useAWS(t, made, n.Config.Name) })
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

func useAWS(t *testing.T, made wire.StorageCredentials, folder string) {
	config := filepath.Join(t.TempDir(), "config")
	text := "[default]\ns3 =\n  multipart_threshold = 8MB\n  multipart_chunksize = 5MB\n  signature_version = s3v4\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := tool{t: t, name: "aws", args: []string{"--endpoint-url", made.Endpoint}, env: []string{
		"AWS_ACCESS_KEY_ID=" + made.AccessKey, "AWS_SECRET_ACCESS_KEY=" + made.SecretKey,
		"AWS_SESSION_TOKEN=" + made.SessionToken, "AWS_DEFAULT_REGION=" + made.Region,
		"AWS_CONFIG_FILE=" + config, "AWS_EC2_METADATA_DISABLED=true",
	}}
	dir, remote := mustFiles(t), "s3://"+made.BucketName+"/aws-"+folder+"/"
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		old := time.Now().Add(-time.Hour) // S3 tells whole seconds, and aws compares times.
		return errors.Join(err, os.Chtimes(path, old, old))
	})
	if err != nil {
		t.Fatal(err)
	}
	c.must("s3", "sync", dir, remote)
	if out := c.must("s3", "sync", dir, remote); strings.TrimSpace(out) != "" {
		t.Errorf("a second sync does\n%s", out)
	}
	if out := c.must("s3", "ls", "--recursive", remote); !strings.Contains(out, "17825792") || !strings.Contains(out, "sub/deep/ü c") {
		t.Errorf("listed are\n%s", out)
	}
	back := t.TempDir()
	c.must("s3", "sync", remote, back)
	mustSame(t, dir, back)
	c.must("s3", "cp", remote+"big", remote+"copy")
	part := filepath.Join(t.TempDir(), "part")
	c.must("s3api", "get-object", "--bucket", made.BucketName, "--key", "aws-"+folder+"/sub/b.bin", "--range", "bytes=10-19", part)
	if got, err := os.ReadFile(part); err != nil || !bytes.Equal(got, noise(100_000)[10:20]) {
		t.Errorf("the range is %q, %v", got, err)
	}
	link := strings.TrimSpace(c.must("s3", "presign", "--expires-in", "60", remote+"sub/b.bin"))
	for address, want := range map[string]int{link: http.StatusOK, strings.Replace(link, "b.bin", "c.bin", 1): http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("the link %s answers %d, want %d", address, resp.StatusCode, want)
		}
	}
	c.must("s3", "rm", "--recursive", remote)
	if out, _ := c.do("s3", "ls", "--recursive", remote); strings.TrimSpace(out) != "" {
		t.Errorf("left are\n%s", out)
	}
}

// TestPathPayloadsOverS3 sends keys to both endpoints of S3 that would climb out of a
// directory if keys were paths. None reads a file of the machine, and none is stored
// with a segment of dots.
func TestPathPayloadsOverS3(t *testing.T) {
	c := newStorageCluster(t)
	creds, err := c.at(c.Follower()).StorageCredentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	climbs := []string{
		"../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%252f", "%252e%252e%252f", "..%c0%af", "%c0%ae%c0%ae/", "..%ef%bc%8f", "....//",
		"..;/", "..%5c", "%2e%2e%5c", "..%255c", ".%2e/", "%2e./", "..%00/", "..%0a/", "..%09/", "/../", "//../", "./../", "%e2%80%a5/",
	}
	sent := 0
	for _, endpoint := range []string{creds.Endpoint, c.Follower().URL() + "/s3"} {
		u, err := url.Parse(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		s := &rawS3{t, creds, u.Host, u.Path}
		for _, target := range []string{"etc/passwd", "proc/self/environ", "var/lib/berth/keys/master.key"} {
			for _, climb := range climbs {
				for depth := range 4 {
					payload := strings.Repeat(climb, depth+1) + target
					for _, method := range []string{"PUT", "GET", "HEAD", "DELETE"} {
						sent++
						status, text := s.ask(s.request(method, payload, nil, 0, nil))
						if strings.Contains(text, "root:") || strings.Contains(text, "PATH=") || status >= 500 {
							t.Errorf("%s %s: %d %.300s", method, payload, status, text)
						}
						if method == "PUT" && status == http.StatusOK {
							c.wantNoDots(t)
						}
					}
				}
			}
		}
	}
	if t.Logf("measured: %d requests", sent); sent < 500 {
		t.Errorf("%d payloads are too few", sent)
	}
}

// wantNoDots holds that no key has a segment of dots.
func (c *storageCluster) wantNoDots(t *testing.T) {
	t.Helper()
	files, _, err := c.at(c.Follower()).Files(t.Context(), "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for segment := range strings.SplitSeq(strings.ReplaceAll(f.Key, "\\", "/"), "/") {
			if segment == ".." || segment == "." {
				t.Errorf("stored as %q", f.Key)
			}
		}
	}
}
