package benchcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"berth/bench/load"
	"berth/cmd/berth/cli"
)

// newStorage returns the command berth bench storage.
func newStorage() *cobra.Command {
	cfg := load.FilesConfig{}
	var asJSON bool
	var gateway string
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "Measure how fast files are stored, read and listed",
		Long: `Storage writes and syncs two copies of files on this disk, which is the reference, starts
three servers on the same disk, and stores, reads and lists files through a follower: a
large one, the same content again, and small ones from many clients.

With --gateway it then starts one server that keeps one copy, and the program versitygw
with its posix back end as the reference, and asks both with the same client of S3. Get
it with GOBIN=$PWD/bin/tools go install github.com/versity/versitygw/cmd/versitygw@v1.8.0.`,
		Example: "  berth bench storage --large 1024 --small 20000\n  berth bench storage --gateway bin/tools/versitygw",
		Args:    cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.LargeMiB < 1 || cfg.Small < 1 || cfg.Clients < 1 {
				return cli.UsageErrorf("--large, --small and --clients must be 1 or more")
			}
			cfg.Listed = cfg.Small
			var report storageReport
			err := withLoad(cmd, func(c *load.Cluster) error {
				var err error
				if report.Files, err = load.MeasureFiles(cmd.Context(), c, cfg); err != nil || asJSON {
					return err
				}
				return printFiles(cmd, report.Files)
			})
			if err == nil && gateway != "" {
				err = withServers(cmd, 1, func(c *load.Cluster) error {
					var err error
					report.Gateway, err = load.MeasureGateway(cmd.Context(), c, load.GatewayConfig{
						Program: gateway, LargeMiB: cfg.LargeMiB, Small: cfg.Small, Clients: cfg.Clients, Dir: cfg.Dir,
					})
					if err != nil || asJSON {
						return err
					}
					return printGateway(cmd, report.Gateway)
				}, "storage.replicas=1")
			}
			return errors.Join(err, printIf(cmd, err == nil && asJSON, report))
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.LargeMiB, "large", 512, "`MiB` of the large file")
	flags.IntVar(&cfg.Small, "small", 10_000, "small `files` of 4 KiB")
	flags.IntVar(&cfg.Clients, "clients", 64, "`clients` at once")
	flags.StringVar(&cfg.Dir, "dir", "", "`directory` for the reference (default: that of temporary files)")
	flags.StringVar(&gateway, "gateway", "", "`PATH` of versitygw, to compare one copy with")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// storageReport is what berth bench storage prints as JSON.
type storageReport struct {
	*load.Files

	Gateway *load.Gateway `json:"gateway,omitempty"`
}

// printFiles prints the table of three servers.
func printFiles(cmd *cobra.Command, r *load.Files) error {
	t := cli.NewTable("figure", "value")
	t.AppendRow(cli.Row("two synced copies, the disk alone", mibRate(r.CopyPS)))
	t.AppendRow(cli.Row("a large file stored", fmt.Sprintf("%s, %.2f of that", mibRate(r.StorePS), r.Ratio)))
	t.AppendRow(cli.Row("the same content again", mibRate(r.AgainPS)))
	t.AppendRow(cli.Row("the large file read", mibRate(r.FetchPS)))
	t.AppendRow(cli.Row("memory of the node meanwhile", fmt.Sprintf("%.0f MiB more", r.GrownMiB)))
	t.AppendRow(cli.Row("small files synced twice a second, the disk alone", rate(r.SyncPS)))
	t.AppendRow(cli.Row(fmt.Sprintf("small files stored a second, %d clients", r.Clients),
		fmt.Sprintf("%s, %s", rate(r.SmallPS), spreadText(r.SmallTime))))
	t.AppendRow(cli.Row("small files read a second", rate(r.ReadPS)))
	t.AppendRow(cli.Row(fmt.Sprintf("a page of 1000 of %d files", r.Listed), spreadText(r.Page)))
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// printGateway prints the table of one server beside versitygw.
func printGateway(cmd *cobra.Command, r *load.Gateway) error {
	t := cli.NewTable("figure", "versitygw", "one server", "of it")
	for _, row := range []struct {
		name       string
		other, own float64
		text       func(float64) string
	}{
		{fmt.Sprintf("a file of %d MiB stored", r.LargeMiB), r.Other.StorePS, r.Own.StorePS, mibRate},
		{"the same file read", r.Other.FetchPS, r.Own.FetchPS, mibRate},
		{fmt.Sprintf("files of 4 KiB stored a second, %d clients", r.Clients), r.Other.SmallPS, r.Own.SmallPS, rate},
	} {
		t.AppendRow(cli.Row(row.name, row.text(row.other), row.text(row.own), fmt.Sprintf("%.2f", row.own/row.other)))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

func mibRate(perSecond float64) string { return fmt.Sprintf("%.0f MiB/s", perSecond) }
