package admin

import (
	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// New returns the command berth admin.
func New() *cobra.Command {
	conn := &cli.Connection{Operator: true}
	cmd := cli.Parent("admin", "Operate a cluster",
		cli.Parent("token", "Manage join tokens", newTokenCreate(conn)),
		cli.Parent("root-token", "Manage the root token", newRootTokenRotate(conn)),
		newUser(conn),
		newNodes(conn), newAdminNode(conn), newRaft(conn), newGrant(conn), newQuota(conn), newOrg(conn), newBrake(conn),
		newStorage(conn), newModel(conn),
		newPrice(conn), newBilling(conn), newAudit(conn), newSecrets(conn))
	cmd.Long = `The commands of an operator take the cluster's root token, which the first node
left in its data directory, or the API key of a user who is an operator.`
	cmd.AddCommand(snapshots(conn)...)
	conn.Register(cmd)
	return cmd
}
