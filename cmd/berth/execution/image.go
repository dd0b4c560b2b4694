package execution

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/cmd/berth/cli"
)

// Limits of files that are read.
const (
	maxPasswordBytes = 8 << 10
	maxComposeBytes  = 256 << 10
)

// imageFlags are the flags of commands that execute the program of an image, or the
// services of a Compose file.
type imageFlags struct {
	ref      string
	compose  string
	user     string
	grace    time.Duration
	registry registryFlags
}

func (f *imageFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.ref, "image", "", "Docker `image` to execute; what follows -- are its arguments")
	flags.StringVar(&f.compose, "compose", "",
		"Compose `file` whose services to execute; ${NAME} in it is a variable of --env")
	flags.StringVar(&f.user, "image-user", "", "`user`, or user:group, in place of the image's own")
	f.grace = 10 * time.Second
	flags.Var((*limit)(&f.grace), "stop-grace", "time between SIGTERM and SIGKILL of containers, at most 5m")
	f.registry.register(cmd)
}

// start returns the request for the image.
func (f *imageFlags) start(cmd *cobra.Command, start client.Start) (client.StartImage, error) {
	registry, err := f.registry.read()
	if err != nil {
		return client.StartImage{}, err
	}
	image := client.StartImage{
		Start: start, Registry: registry, Image: f.ref, RunCommand: start.Command, RunUser: f.user,
	}
	image.Command = nil
	if cmd.Flags().Changed("stop-grace") {
		image.GracefulTimeout = int(f.grace.Seconds())
	}
	return image, nil
}

// startCompose returns the request for the Compose file.
func (f *imageFlags) startCompose(cmd *cobra.Command, start client.Start) (client.StartCompose, error) {
	registry, err := f.registry.read()
	if err != nil {
		return client.StartCompose{}, err
	}
	text, err := cli.ReadFile(f.compose, maxComposeBytes)
	if err != nil {
		return client.StartCompose{}, err
	}
	compose := client.StartCompose{Start: start, Registry: registry, File: text}
	if cmd.Flags().Changed("stop-grace") {
		compose.GracefulTimeout = int(f.grace.Seconds())
	}
	return compose, nil
}

// registryFlags are the flags about the registry of images.
type registryFlags struct {
	user         string
	passwordFile string
	aws          bool
	region       string
}

func (f *registryFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.user, "registry-user", "", "`user` of the registry of the images")
	flags.StringVar(&f.passwordFile, "registry-password-file", "",
		"`FILE` with its password, or ${{ secrets.NAME }} of yours")
	flags.BoolVar(&f.aws, "registry-aws", false,
		"the registry is Amazon ECR: use AWS_ACCESS_KEY_ID and its like of this environment")
	flags.StringVar(&f.region, "registry-region", "", "`region` of Amazon ECR (default AWS_REGION, or us-east-1)")
}

// read returns what the flags say.
func (f *registryFlags) read() (client.Registry, error) {
	switch {
	case f.aws && (f.user != "" || f.passwordFile != ""):
		return client.Registry{}, cli.UsageErrorf("--registry-aws and --registry-user exclude each other")
	case f.aws:
		r := client.Registry{
			CredentialType: "aws", AWSKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), AWSSecret: os.Getenv("AWS_SECRET_ACCESS_KEY"),
			AWSSession: os.Getenv("AWS_SESSION_TOKEN"), AWSRegion: f.region,
		}
		if r.AWSRegion == "" {
			r.AWSRegion = os.Getenv("AWS_REGION")
		}
		if r.AWSKeyID == "" || r.AWSSecret == "" {
			return r, cli.UsageErrorf("--registry-aws: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set here")
		}
		return r, nil
	case (f.user == "") != (f.passwordFile == ""):
		return client.Registry{}, cli.UsageErrorf("--registry-user and --registry-password-file go together")
	case f.user == "":
		return client.Registry{}, nil
	case strings.HasPrefix(f.passwordFile, "${{"):
		return client.Registry{CredentialType: "basic", Username: f.user, Password: f.passwordFile}, nil
	}
	password, err := cli.ReadFile(f.passwordFile, maxPasswordBytes)
	if err != nil {
		return client.Registry{}, err
	}
	return client.Registry{CredentialType: "basic", Username: f.user, Password: strings.TrimRight(password, "\r\n")}, nil
}
