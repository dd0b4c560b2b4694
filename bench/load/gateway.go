package load

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"berth/loop"
)

// GatewayConfig configures MeasureGateway.
type GatewayConfig struct {
	Program  string // The program versitygw.
	LargeMiB int
	Small    int
	Clients  int
	Dir      string // For its files.
}

// Gateway has the measurements of MeasureGateway.
type Gateway struct {
	LargeMiB int `json:"large_mib"`
	Clients  int `json:"clients"`

	Other S3Rates `json:"versitygw"`
	Own   S3Rates `json:"own"`
}

// S3Rates says how fast a client of S3 stores and reads: a large file in MiB a second, and
// small files a second.
type S3Rates struct {
	StorePS float64 `json:"store_mib_per_second"`
	FetchPS float64 `json:"fetch_mib_per_second"`
	SmallPS float64 `json:"small_stored_per_second"`
}

// Parts of the large file, as clients of S3 make them by default or nearly so.
const (
	s3Part      = 16 << 20
	s3AtOnce    = 4
	gatewayWait = 10 * time.Second
)

// MeasureGateway stores and reads the same files with the same client of S3 in a cluster of
// one server and in versitygw with its posix back end, the reference, on the same disk.
// versitygw does not sync what it stores.
func MeasureGateway(ctx context.Context, c *Cluster, cfg GatewayConfig) (*Gateway, error) {
	out := &Gateway{LargeMiB: cfg.LargeMiB, Clients: cfg.Clients}
	api, err := c.client(c.APIKey)
	if err != nil {
		return nil, err
	}
	given, err := api.StorageCredentials(ctx)
	if err != nil {
		return nil, err
	}
	own := s3Bucket{name: given.BucketName, s3: s3.New(s3Options(given.Endpoint, given.Region, aws.Credentials{
		AccessKeyID: given.AccessKey, SecretAccessKey: given.SecretKey, SessionToken: given.SessionToken,
	}))}
	other, stop, err := startGateway(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer stop()
	large := make([]byte, cfg.LargeMiB<<20)
	if _, err := rand.Read(large); err != nil {
		return nil, err
	}
	for _, run := range []struct {
		bucket s3Bucket
		rates  *S3Rates
	}{{other, &out.Other}, {own, &out.Own}} {
		unix.Sync() // The disk may still write for the other one, which does not wait for it.
		if err := run.bucket.measure(ctx, cfg, large, run.rates); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// s3Options returns a client's options for one endpoint. Bodies are not part of signatures.
func s3Options(endpoint, region string, keys aws.Credentials) s3.Options {
	return s3.Options{
		Region: region, BaseEndpoint: &endpoint, UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(
			func(context.Context) (aws.Credentials, error) { return keys, nil }),
		HTTPClient:                 &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}
}

// startGateway starts versitygw with an empty bucket.
func startGateway(ctx context.Context, cfg GatewayConfig) (bucket s3Bucket, stop func(), err error) {
	dir, err := os.MkdirTemp(cfg.Dir, "berth-bench-gateway-")
	if err != nil {
		return bucket, nil, err
	}
	for _, name := range []string{"data/bench", "meta"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return bucket, nil, err
		}
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return bucket, nil, err
	}
	keys := aws.Credentials{AccessKeyID: "bench", SecretAccessKey: rand.Text()}
	cmd := exec.CommandContext(ctx, cfg.Program, "--port", address, "--region", "us-east-1", "--quiet", "--keep-alive",
		"posix", "--sidecar", filepath.Join(dir, "meta"), filepath.Join(dir, "data"))
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+keys.AccessKeyID, "ROOT_SECRET_ACCESS_KEY="+keys.SecretAccessKey)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return bucket, nil, fmt.Errorf("start versitygw: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	bucket = s3Bucket{name: "bench", s3: s3.New(s3Options("http://"+address, "us-east-1", keys))}
	wait, cancel := context.WithTimeout(ctx, gatewayWait)
	defer cancel()
	last := errors.New("it was not asked")
	err = loop.Until(wait, 50*time.Millisecond, func() bool {
		_, last = bucket.s3.HeadBucket(wait, &s3.HeadBucketInput{Bucket: &bucket.name})
		return last == nil
	})
	if err != nil {
		stop()
		return bucket, nil, fmt.Errorf("versitygw does not answer: %w; it printed %.500q", last, said.String())
	}
	return bucket, stop, nil
}

// freeAddress returns an address of this machine at which nothing listens.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return "", fmt.Errorf("take port: %w", err)
	}
	return l.Addr().String(), nil
}

// s3Bucket is a bucket that is measured.
type s3Bucket struct {
	name string
	s3   *s3.Client
}

// measure stores and reads the files.
func (b s3Bucket) measure(ctx context.Context, cfg GatewayConfig, large []byte, rates *S3Rates) error {
	for _, run := range []struct {
		rate   *float64
		amount int
		do     func() error
	}{
		{&rates.StorePS, cfg.LargeMiB, func() error { return b.storeLarge(ctx, "large", large) }},
		{&rates.FetchPS, cfg.LargeMiB, func() error { return b.fetch(ctx, "large", int64(len(large))) }},
		{&rates.SmallPS, cfg.Small, func() error { return b.storeSmall(ctx, cfg) }},
	} {
		begun := time.Now() //nolint:forbidigo // A stopwatch.
		if err := run.do(); err != nil {
			return err
		}
		*run.rate = float64(run.amount) / time.Since(begun).Seconds()
	}
	return nil
}

func unsignedBody(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

// storeLarge stores a file in parts, a few at a time.
func (b s3Bucket) storeLarge(ctx context.Context, key string, data []byte) error {
	made, err := b.s3.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &b.name, Key: &key})
	if err != nil {
		return err
	}
	parts := make([]types.CompletedPart, (len(data)+s3Part-1)/s3Part)
	var group errgroup.Group
	group.SetLimit(s3AtOnce)
	for i := range parts {
		group.Go(func() error {
			body := data[i*s3Part : min((i+1)*s3Part, len(data))]
			number := aws.Int32(int32(i + 1))
			out, err := b.s3.UploadPart(ctx, &s3.UploadPartInput{
				Bucket: &b.name, Key: &key, UploadId: made.UploadId, PartNumber: number, Body: bytes.NewReader(body),
			}, unsignedBody)
			if err != nil {
				return err
			}
			parts[i] = types.CompletedPart{ETag: out.ETag, PartNumber: number}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err = b.s3.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &b.name, Key: &key, UploadId: made.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	return err
}

// fetch reads a file.
func (b s3Bucket) fetch(ctx context.Context, key string, size int64) error {
	out, err := b.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	n, err := io.Copy(io.Discard, out.Body)
	if err == nil && n != size {
		err = fmt.Errorf("%s has %d bytes, not %d", key, n, size)
	}
	return err
}

// storeSmall stores small files, each other than the others, from many clients.
func (b s3Bucket) storeSmall(ctx context.Context, cfg GatewayConfig) error {
	var next atomic.Int64
	var group errgroup.Group
	for range cfg.Clients {
		group.Go(func() error {
			data := make([]byte, smallFile)
			for i := next.Add(1) - 1; i < int64(cfg.Small); i = next.Add(1) - 1 {
				key := fmt.Sprintf("small/%07d", i)
				copy(data, key)
				_, err := b.s3.PutObject(ctx, &s3.PutObjectInput{
					Bucket: &b.name, Key: &key, Body: bytes.NewReader(data),
				}, unsignedBody)
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
